"""One small dataset from raw logs, one model with random weights, one servable of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from raw_events import events_of_test_rows

from merlin_sim.foundation.progress import Silence
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model
from merlin_sim.workflows.amazon import AmazonReviews, read_categories
from merlin_sim.workflows.preprocess.preprocess_log import PreprocessLog
from merlin_sim.workflows.rules import ALL_ROWS, ITEM_ORDER, SampleRules
from merlin_sim.workflows.schedulers import SingleProcess
from merlin_sim.workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize

BEHAVIOUR = PlantedBehaviour(users=40, items=300, categories=8, mean_length=30.0, seed=3)
LENGTH = 20


@pytest.fixture(scope="session")
def raw_logs(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("raw")
    synthesize(directory, BEHAVIOUR)
    return directory


@pytest.fixture(scope="session")
def dataset(raw_logs, tmp_path_factory) -> DatasetDirectory:
    path = tmp_path_factory.mktemp("datasets") / "dataset"
    reviews, metadata = raw_logs / "reviews_Books.json", raw_logs / "meta_Books.json"
    rules = SampleRules(max_sequence_length=LENGTH, equal_times=ITEM_ORDER, fit_on=ALL_ROWS)
    PreprocessLog(
        AmazonReviews(reviews),
        rules,
        given=lambda: read_categories(metadata, SingleProcess(), Silence(), "fail"),
    ).write(path)
    return DatasetDirectory.open(path)


@pytest.fixture(scope="session")
def make_model(dataset):
    def make(kind="din", seed=11, **options):
        tf.keras.utils.set_random_seed(seed)
        model = build_model(kind, dataset.schema, embedding_dim=4, **options)
        for variable in model.trainable_variables:  # scores that differ from user to user
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
        return model

    return make


@pytest.fixture(scope="session")
def model(make_model):
    return make_model()


@pytest.fixture(scope="session")
def servable(model, dataset, tmp_path_factory) -> Servable:
    return Servable.open(
        export_model(model, dataset, tmp_path_factory.mktemp("servables") / "servable")
    )


@pytest.fixture(scope="session")
def second(make_model, dataset, tmp_path_factory) -> Path:
    """The export of another model of the same dataset."""
    index = tmp_path_factory.mktemp("exports") / "second"
    return export_model(make_model(seed=12), dataset, index)


@pytest.fixture(scope="session")
def scorer(servable) -> Scorer:
    return Scorer(servable)


@pytest.fixture(scope="session")
def encoder(servable) -> EventEncoder:
    return EventEncoder(servable)


@pytest.fixture(scope="session")
def events(dataset, raw_logs) -> list[dict]:
    """Raw events for the rows of test, in their order."""
    return events_of_test_rows(dataset.path, raw_logs / "reviews_Books.json")


@pytest.fixture(scope="session")
def expected(model, dataset):
    """The model's own scores of the rows of test."""
    return model.predict(dataset, batch_size=32)[:, 0]
