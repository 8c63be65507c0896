"""The forward pass in parts gives what it gives in one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation import prediction
from merlin_sim.training.evaluation.prediction import Predictor
from merlin_sim.training.runs.prepared_run import RunParts


@pytest.fixture
def calls(monkeypatch):
    """Small parts, and whoever asks for them."""
    calls = []
    in_parts = prediction.in_parts

    def counted(function, rows, rows_per_part):
        calls.append(rows_per_part)
        return in_parts(function, rows, rows_per_part)

    for name in ("ROWS_PER_PART", "MOST_ROWS"):
        monkeypatch.setattr(prediction, name, 8)
    monkeypatch.setattr(prediction, "in_parts", counted)
    return calls


def scores_of(predict, batches):
    return np.concatenate([predict(columns).numpy() for columns, _ in batches])


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [5, 8, 41, 101])
def test_batches_of_any_size_have_the_scores_of_the_whole(sim_dataset, calls, batch_size):
    dataset = DatasetDirectory.open(sim_dataset)
    model = build_model("sim", dataset.schema, embedding_dim=4, long_seq_length=6, top_k=3)
    batches = list(open_loader(dataset, "test", dataset.schema.column_names, batch_size, Ranks()))
    expected = scores_of(Predictor(model), batches)
    assert not calls and len(expected) == 101
    received = scores_of(Predictor(model, parts=True), batches)
    assert len(calls) == 1  # traced once, whatever the size
    np.testing.assert_allclose(received, expected, rtol=1e-6)


@pytest.mark.parametrize(("length", "rows"), [(10, 100), (100, 20), (10_000, 8)])
def test_longer_histories_have_smaller_parts(monkeypatch, length, rows):
    """They would not fit into memory; at least as many rows as are worth a part stay together."""

    class Model:
        def forward(self, columns):
            sizes.append(tf.shape(columns["history"])[0])
            tf.debugging.assert_less_equal(sizes[-1], rows)
            return SimpleNamespace(logits=tf.reduce_sum(columns["history"], 1, keepdims=True))

    sizes = []
    monkeypatch.setattr(prediction, "ROWS_PER_PART", 8)
    monkeypatch.setattr(prediction, "MOST_POSITIONS", 2_000)
    scores = Predictor(Model(), parts=True)({"history": tf.zeros([200, length])})
    assert scores.shape == [200] and len(sizes) == 2  # traced in parts, and whole


@pytest.mark.parametrize(
    ("threads", "devices", "parts"),
    [("1", [], True), ("2", [], False), (None, [], False), ("1", ["GPU:0"], False)],
)
def test_parts_are_for_processors_whose_operations_have_one_thread(
    monkeypatch, threads, devices, parts
):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", threads)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: devices)  # no GPU is here
    config = SimpleNamespace(xla=False, tables="replicated")
    run = SimpleNamespace(model=None, config=config, compiles_all=False)
    assert RunParts.predictor(run).parts is parts
