"""The published log format: what a run writes in it, and what report makes of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
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
