"""The forward pass in parts gives what it gives in one."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.parallel.steps import fused
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

    monkeypatch.setattr(prediction, "ROWS_PER_PART", 8)
    monkeypatch.setattr(prediction, "in_parts", counted)
    return calls


def scores_of(predict, batches):
    return np.concatenate([predict(columns).numpy() for columns, _ in batches])


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [8, 41])
def test_batches_of_any_size_have_the_scores_of_the_whole(sim_dataset, calls, batch_size):
    dataset = DatasetDirectory.open(sim_dataset)
    model = build_model("sim", dataset.schema, embedding_dim=4, long_seq_length=6, top_k=3)
    batches = list(open_loader(dataset, "test", dataset.schema.column_names, batch_size, Ranks()))
    expected = scores_of(Predictor(model), batches)
    assert not calls and len(expected) == 101
    received = scores_of(Predictor(model, parts=True), batches)
    assert calls == [8]  # traced once, whatever the size
    np.testing.assert_allclose(received, expected, rtol=1e-6)


class RecordingModel:
    """Keeps how many rows each call has, and whether their arithmetic was fused."""

    def __init__(self):
        self.rows, self.fused = [], []

    def forward(self, columns):
        history = columns["history"]
        tf.numpy_function(lambda count: self.rows.append(int(count)), [tf.shape(history)[0]], [])
        self.fused.append(fused._wanted.get())
        return SimpleNamespace(logits=tf.reduce_sum(history, 1, keepdims=True))


def feed_of(batch_size):
    def make(history):
        return {"history": history}, tf.zeros([batch_size]), None

    return SimpleNamespace(make=make, batch_size=batch_size)


@pytest.mark.parametrize(
    ("cores", "length", "rows"),
    [
        (2, 10, [100, 100]),  # one for each core
        (4, 10, [50, 50, 50, 50]),
        (2, 100, [20] * 10),  # 4,000 positions on both cores
        (4, 100, [10] * 20),
        (2, 10_000, [8] * 25),  # as many rows as are worth a part
    ],
)
def test_parts_of_fused_arithmetic_go_by_cores_and_positions(monkeypatch, cores, length, rows):
    """Of long histories, more would not fit into memory."""
    monkeypatch.setattr(prediction, "count_cores", lambda: cores)
    monkeypatch.setattr(prediction, "ROWS_PER_PART", 8)
    monkeypatch.setattr(prediction, "MOST_POSITIONS", 4_000)
    monkeypatch.setattr(prediction, "MANY_SAMPLES", 200)
    model, history = RecordingModel(), tf.zeros([200, length])
    found = Predictor(model, parts=True).of_given(history, feed_of(200))
    assert found.scores.shape == (200,) and model.rows == rows and all(model.fused)


def test_without_it_parts_are_small(monkeypatch):
    monkeypatch.setattr(prediction, "ROWS_PER_PART", 8)
    model, history = RecordingModel(), tf.zeros([200, 10])
    assert Predictor(model, parts=True)({"history": history}).shape == [200]
    Predictor(model, parts=True).of_given(history, feed_of(200))
    assert model.rows == [8] * 50 and not any(model.fused)


@pytest.mark.parametrize(("samples", "fuses"), [(2047, False), (2048, True)])
def test_large_batches_are_scored_with_fused_arithmetic(samples, fuses):
    model = RecordingModel()
    Predictor(model).of_given(tf.zeros([samples, 2]), feed_of(samples))
    assert model.rows == [samples] and model.fused == [fuses]


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
