"""The loss over test data is that of its samples, however they are put into batches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from small_users import write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory

pytestmark = pytest.mark.slow


def test_fillers_of_users_x_candidates_count_nowhere(tmp_path):
    lengths = np.random.default_rng(0).integers(2, 25, 12).tolist()
    dataset = DatasetDirectory.open(write_users_dataset(tmp_path / "users", [[lengths]]))
    tf.keras.utils.set_random_seed(2)
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.5))
    model.compile("sgd")
    columns = list(dataset.schema.column_names)
    losses = [
        model.evaluate(
            open_loader(dataset, "train", columns, 32, Ranks(), candidates=candidates),
            verbose=0,
            return_dict=True,
        )["loss"]
        for candidates in (1, 4, 8)
    ]
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)
    assert abs(losses[0] - np.log(2)) > 0.01
