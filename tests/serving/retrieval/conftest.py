"""A small dataset from raw logs, two towers and a ranker with random weights, and their index."""

from __future__ import annotations

import pytest
import tensorflow as tf
from small_runs import TWO_TOWER

from merlin_sim.foundation.progress import Silence
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.retrieval.index import write_index
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model
from merlin_sim.workflows.amazon import AmazonReviews, amazon_files, read_categories
from merlin_sim.workflows.preprocess.preprocess_log import PreprocessLog
from merlin_sim.workflows.rules import ALL_ROWS, ITEM_ORDER, SampleRules
from merlin_sim.workflows.schedulers import SingleProcess
from merlin_sim.workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize

BEHAVIOUR = PlantedBehaviour(users=40, items=300, categories=8, mean_length=30.0, seed=3)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    home = tmp_path_factory.mktemp("retrieval")
    (home / "raw").mkdir()
    synthesize(home / "raw", BEHAVIOUR)
    reviews, metadata = amazon_files(home / "raw", "reviews_Books.json", "meta_Books.json")
    PreprocessLog(
        AmazonReviews(reviews),
        SampleRules(max_sequence_length=20, equal_times=ITEM_ORDER, fit_on=ALL_ROWS),
        given=lambda: read_categories(metadata, SingleProcess(), Silence(), "fail"),
    ).write(home / "dataset")
    return DatasetDirectory.open(home / "dataset")


def exported(dataset, path, model_type, seed=1, **options):
    tf.keras.utils.set_random_seed(seed)
    export_model(build_model(model_type, dataset.schema, **options), dataset, path)
    return Servable.open(path)


@pytest.fixture(scope="session")
def towers(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("towers") / "servable"
    return Towers(exported(dataset, path, "two_tower", **TWO_TOWER))


@pytest.fixture(scope="session")
def ranker(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("ranker") / "servable"
    return exported(dataset, path, "din", embedding_dim=4, stage_two_mlp_dims=(8,))


@pytest.fixture(scope="session")
def other_ranker(dataset, tmp_path_factory):
    """Of another seed: it scores otherwise."""
    path = tmp_path_factory.mktemp("ranker") / "servable"
    return exported(dataset, path, "din", seed=2, embedding_dim=8, stage_two_mlp_dims=(8,))


@pytest.fixture(scope="session")
def index_path(towers, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    write_index(towers, path)
    return path
