"""The forward pass in parts gives what it gives in one, and samples the same loss in any batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from small_users import write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.parallel.steps.fused import fused
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation import prediction
from merlin_sim.training.evaluation.prediction import Predictor
from merlin_sim.training.evaluation.throughput import peak_memory
from merlin_sim.training.runs.prepared_run import RunParts

DIEN = {"embedding_dim": 4, "stage_two_mlp_dims": (8,), "aux_mlp_dims": (6,), "long_seq_length": 8}


@pytest.mark.slow
def test_batches_of_any_size_have_the_scores_of_the_whole_and_its_loss(sim_dataset, monkeypatch):
    """DIEN's auxiliary loss too, as in training."""
    calls, in_parts = [], prediction.in_parts

    def counted(function, rows, rows_per_part):
        calls.append(rows_per_part)
        return in_parts(function, rows, rows_per_part)

    monkeypatch.setattr(prediction, "ROWS_PER_PART", 8)
    monkeypatch.setattr(prediction, "in_parts", counted)
    dataset = DatasetDirectory.open(sim_dataset)
    tf.keras.utils.set_random_seed(3)
    model = build_model("dien", dataset.schema, **DIEN)
    columns = dataset.schema.column_names
    batches = list(open_loader(dataset, "test", columns, 41, Ranks()))
    scores = []
    for predict in (Predictor(model), Predictor(model, parts=True)):
        assert not calls
        scores.append(np.concatenate([predict(columns).numpy() for columns, _ in batches]))
    assert calls == [8]  # traced once, whatever the size
    assert len(scores[0]) == 101
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-6)

    (batch, labels), *_ = open_loader(dataset, "test", columns, 101, Ranks())
    total, classification, auxiliary = model.compute_step(batch, labels, training=False)[0]
    assert float(auxiliary) > 0.1
    model.compile("sgd", run_eagerly=True)
    feed = open_loader(dataset, "test", columns, 41, Ranks())
    loss = model.evaluate(feed, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(float(classification + auxiliary), rel=1e-5)
    assert float(total) == pytest.approx(loss, rel=1e-5)


@pytest.mark.slow
def test_fillers_of_users_x_candidates_count_nowhere(tmp_path):
    lengths = np.random.default_rng(0).integers(2, 25, 12).tolist()
    dataset = DatasetDirectory.open(write_users_dataset(tmp_path / "users", [[lengths]]))
    tf.keras.utils.set_random_seed(2)
    model = build_model("din", dataset.schema, embedding_dim=4, stage_two_mlp_dims=(8,))
    for variable in model.trainable_variables:
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.5))
    model.compile("sgd", run_eagerly=True)
    columns, losses = list(dataset.schema.column_names), []
    for candidates in (1, 4):
        feed = open_loader(dataset, "train", columns, 32, Ranks(), candidates=candidates)
        losses.append(model.evaluate(feed, verbose=0, return_dict=True)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert abs(losses[0] - np.log(2)) > 0.01


class RecordingModel:
    """Keeps how many rows each call has, and whether their arithmetic was fused."""

    def __init__(self):
        self.rows, self.fused = [], []

    def forward(self, columns):
        history = columns["history"]
        tf.numpy_function(lambda count: self.rows.append(int(count)), [tf.shape(history)[0]], [])
        graph = tf.compat.v1.get_default_graph()

        def note(values):
            self.fused.append(tf.compat.v1.get_default_graph() is not graph)
            return values

        fused(note)(history)
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


def test_without_it_parts_are_small_and_only_large_batches_have_it(monkeypatch):
    monkeypatch.setattr(prediction, "ROWS_PER_PART", 8)
    model, history = RecordingModel(), tf.zeros([200, 10])
    assert Predictor(model, parts=True)({"history": history}).shape == [200]
    Predictor(model, parts=True).of_given(history, feed_of(200))
    assert model.rows == [8] * 50 and not any(model.fused)
    for samples, fuses in ((2047, False), (2048, True)):
        model = RecordingModel()
        Predictor(model).of_given(tf.zeros([samples, 2]), feed_of(samples))
        assert model.rows == [samples] and set(model.fused) == {fuses}


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


def test_the_peaks_of_memory_are_those_of_the_process_and_of_its_gpu(monkeypatch):
    before = peak_memory()
    held = bytearray(3 * 2**28)  # touched: bytearray fills with zeros
    held[:: 2**12] = b"x" * len(held[:: 2**12])
    after = peak_memory()
    assert before.keys() == after.keys() == {"peak_memory_gib"}
    assert 0.1 < before["peak_memory_gib"] < 100
    assert after["peak_memory_gib"] >= 0.75
    gpus = [SimpleNamespace(name="/device:GPU:0")]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus)
    reported = {"GPU:0": {"current": 5, "peak": 3 * 2**29}}
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", reported.__getitem__)
    assert peak_memory()["peak_gpu_memory_gib"] == pytest.approx(1.5)
