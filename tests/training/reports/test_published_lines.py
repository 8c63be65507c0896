"""The published log format: what a run writes in it, and what report makes of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from small_logs import SMALL_OPTIONS

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.reports.report import write_report
from merlin_sim.training.reports.run_results import read_results
from merlin_sim.training.run_log import PublishedLines
from merlin_sim.training.runs.run import run

pytestmark = pytest.mark.slow

LATENCIES = {"latency_mean", "latency_p90", "latency_p95", "latency_p99"}


@pytest.fixture
def logged(small_run, tmp_path):
    """Runs, and gives the objects of the log's lines."""

    def lines(**changes):
        result = run(small_run(**{"log_format": "dllogger", **changes}))
        text = (tmp_path / "results" / "log.json").read_text().splitlines()
        assert all(line.startswith("DLLL {") for line in text)
        return [json.loads(line.removeprefix("DLLL ")) for line in text], result

    return lines


def of_length(entries, length):
    return [e for e in entries if e["type"] == "LOG" and len(e["step"]) == length]


def test_a_training_run_writes_the_published_lines(logged, tmp_path):
    entries, result = logged()
    heads = {e["metric"]: e["metadata"]["unit"] for e in entries if e["type"] == "METADATA"}
    assert heads["time_to_train"] == "s" and heads["test_auc"] is None
    assert [list(e) for e in entries[-1:]] == [
        ["timestamp", "datetime", "elapsedtime", "type", "step", "data"]
    ]
    assert float(entries[0]["elapsedtime"]) <= float(entries[-1]["elapsedtime"])
    steps, epochs, runs = (of_length(entries, length) for length in (2, 1, 0))
    assert [e["step"] for e in steps] == [[epoch, step] for epoch in (0, 1) for step in range(5)]
    assert {"total_loss", "classification_loss", "dien_aux_loss", "samples/s"} <= set(
        steps[0]["data"]
    )
    assert [e["step"] for e in epochs] == [[0], [1]] and len(runs) == 1
    keys = {"train_auc", "train_loss", "test_auc", "test_loss"}
    assert keys | LATENCIES | {"throughput", "time"} <= set(epochs[0]["data"])
    assert keys | {"time_to_train"} <= set(runs[0]["data"])
    assert not {"epoch", "step", "seconds"} & set(epochs[0]["data"])
    last = epochs[-1]["data"]
    mean = np.mean([e["data"]["total_loss"] for e in steps[5:]])
    assert last["train_loss"] == pytest.approx(mean)
    # DIN's objective is the log loss, and both go over all 101 rows.
    assert last["test_loss"] == pytest.approx(last["test_log_loss"], rel=1e-5)
    assert result["test_loss"] == last["test_loss"]
    found = read_results(tmp_path / "results")
    assert [e["step"] for e in found.steps] == list(range(1, 11))
    assert [e["epoch"] for e in found.epochs] == [1, 2]
    assert found.epochs[0]["total_loss"] == epochs[0]["data"]["train_loss"]
    assert found.last["time_to_train"] == runs[0]["data"]["time_to_train"]
    page = write_report([tmp_path / "results"]).page.read_text()
    assert f"{last['test_auc']:.4f}" in page


def test_the_test_loss_has_all_parts_of_the_objective(sim_dataset, tmp_path):
    """SIM's two stages and its auxiliary loss, as in training, over rows in batches of any size."""
    from merlin_sim.dataloader.open_loader import open_loader
    from merlin_sim.foundation.ranks import Ranks
    from merlin_sim.models import build_model
    from merlin_sim.schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(sim_dataset)
    tf.keras.utils.set_random_seed(3)
    model = build_model("sim", dataset.schema, **SMALL_OPTIONS)
    model.compile("sgd")
    columns = list(dataset.schema.column_names)
    losses = [
        model.evaluate(
            open_loader(dataset, "test", columns, size, Ranks()), verbose=0, return_dict=True
        )["loss"]
        for size in (101, 37)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    (batch, labels), *_ = open_loader(dataset, "test", columns, 101, Ranks())
    total, classification, auxiliary = model.compute_step(batch, labels, training=False)[0]
    assert float(auxiliary) > 0.1
    assert losses[0] == pytest.approx(float(classification + auxiliary), rel=1e-5)
    assert float(total) == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_benchmarks_and_inference_have_step_lines(mode, logged, tmp_path):
    bench = {"benchmark": True, "benchmark_steps": 4, "benchmark_warmup_steps": 2}
    entries, _ = logged(mode=mode, **bench)
    steps, ends = of_length(entries, 2), of_length(entries, 0)
    an_epoch = 5 if mode == "train" else 2
    assert [e["step"] for e in steps] == [[n // an_epoch, n % an_epoch] for n in range(6)]
    assert all(e["data"]["samples/s"] > 0 for e in steps)
    assert ("total_loss" in steps[0]["data"]) == (mode == "train")
    assert len(ends) == 1 and LATENCIES | {"throughput", "time"} <= set(ends[0]["data"])
    assert read_results(tmp_path / "results").last["throughput"] > 0


def test_inference_without_a_benchmark_has_them_too(logged):
    entries, result = logged(mode="inference")
    assert [e["step"] for e in of_length(entries, 2)] == [[0, 0], [0, 1]]
    (end,) = of_length(entries, 0)
    assert end["data"]["test_auc"] == result["test_auc"] and end["data"]["time"] > 0


def test_a_published_log_is_read_and_a_wrong_line_is_named(tmp_path):
    lines = PublishedLines()
    text = lines.head()
    for epoch in (0, 1):
        text += [lines.line((epoch, n), {"total_loss": 1.0 - n / 9}) for n in range(3)]
        values = {"train_auc": 0.7, "train_loss": 0.8, "test_auc": 0.6, "test_loss": 0.9}
        text.append(lines.line((epoch,), {"throughput": 9.0, "seconds": 3.0, **values}))
    text.append(lines.line((), {"time_to_train": 6.0, "test_auc": math.pi / 5}))
    (tmp_path / "log.json").write_text("\n".join(text) + "\n")
    found = read_results(tmp_path)
    assert [entry["step"] for entry in found.steps] == [1, 2, 3, 4, 5, 6]
    assert found.epochs[1]["seconds"] == 3.0 and found.last["test_auc"] == math.pi / 5
    text.insert(7, 'DLLL {"type": "LOG", "data": {}}')
    (tmp_path / "log.json").write_text("\n".join(text) + "\n")
    with pytest.raises(MerlinSimError, match="line 8: not an entry of a run's log"):
        read_results(tmp_path)
