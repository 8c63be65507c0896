"""Two towers and a ranker with random weights, of the small dataset, and their index."""

from __future__ import annotations

import pytest
import tensorflow as tf
from small_runs import TWO_TOWER

from merlin_sim.models import build_model
from merlin_sim.serving.retrieval.index import write_index
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model


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
