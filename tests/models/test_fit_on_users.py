"""fit, evaluate and predict of a directory with one row per user: batches of users x candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from small_users import write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.models.known_families import families
from merlin_sim.schemas.dataset import DatasetDirectory

LENGTHS = np.random.default_rng(0).integers(2, 25, 20).tolist()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("users") / "dataset"
    return DatasetDirectory.open(write_users_dataset(directory, [[LENGTHS]]))


def built(dataset):
    tf.keras.utils.set_random_seed(1)
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return model


@pytest.mark.slow
def test_predictions_and_metrics_are_those_of_the_rows_in_their_order(dataset):
    model = built(dataset)
    model.compile("sgd", metrics=[tf.keras.metrics.AUC(name="auc")])
    rows = open_loader(dataset, "test", dataset.schema.column_names, 8, Ranks())
    scores = model.predict(dataset, batch_size=20)
    assert scores.shape == (2 * len(LENGTHS), 1)
    np.testing.assert_allclose(scores, model.predict(rows), rtol=1e-5, atol=1e-7)
    ours = model.evaluate(dataset, batch_size=20, verbose=0, return_dict=True)
    theirs = model.evaluate(rows, verbose=0, return_dict=True)
    for name in ("loss", "auc"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-5)


@pytest.mark.slow
def test_fit_counts_each_sample_once(dataset):
    model = built(dataset)
    model.compile("sgd", metrics=[])
    before = model.evaluate(open_loader_of_train(dataset), verbose=0, return_dict=True)["loss"]
    model.optimizer.learning_rate = 0.0
    fitted = model.fit(dataset, batch_size=64, verbose=0).history["loss"]
    assert fitted == pytest.approx([before], rel=1e-5)
    options = {"batch_size": 64, "verbose": 0, "class_weight": {0: 2.0, 1: 2.0}}
    assert model.fit(dataset, **options).history["loss"] == pytest.approx([2 * before], rel=1e-5)


def open_loader_of_train(dataset):
    return open_loader(dataset, "train", dataset.schema.column_names, 50, Ranks())


def test_a_family_takes_candidates_where_its_model_s_class_says_so():
    take = {name for name, family in families().items() if family.takes_candidates}
    assert take == {"din", "dien", "sim", "eta", "sdim", "twin", "stca"}
    plain = replace(families()["sim"], model="tensorflow.keras:Model")
    assert not plain.takes_candidates
