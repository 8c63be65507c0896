"""Two towers and rankers with random weights, of the small dataset, and their index."""

from __future__ import annotations

import pytest
import tensorflow as tf
from small_runs import TWO_TOWER

from merlin_sim.models import build_model
from merlin_sim.serving.retrieval.index import write_index
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model


@pytest.fixture(scope="session")
def towers(dataset, tmp_path_factory):
    path = tmp_path_factory.mktemp("towers") / "servable"
    tf.keras.utils.set_random_seed(1)
    export_model(build_model("two_tower", dataset.schema, **TWO_TOWER), dataset, path)
    return Towers(Servable.open(path))


@pytest.fixture(scope="session")
def ranker(servable):
    return servable


@pytest.fixture(scope="session")
def other_ranker(second):
    """Of another seed: it scores otherwise."""
    return Servable.open(second)


@pytest.fixture(scope="session")
def index_path(towers, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index"
    write_index(towers, path)
    return path
