"""Throughput, latency and seconds: of which steps a run and a benchmark report them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from processes import entries
from small_runs import small_run_of

from merlin_sim.models.trainable_model import TrainableModel
from merlin_sim.training.callbacks import throughput
from merlin_sim.training.reports.run_results import read_results
from merlin_sim.training.runs.run import run

pytestmark = pytest.mark.slow


class Clock:
    """Stands for the module ``time``: only steps take time, the first of a process 60 seconds."""

    def __init__(self):
        self.now, self.steps = 0.0, 0

    def perf_counter(self):
        return self.now

    def step(self):
        self.now += 0.5 if self.steps else 60.0
        self.steps += 1


@pytest.fixture(scope="module")
def clock():
    """Gives each run a new clock, as each process would have its own."""
    make_function = TrainableModel.make_train_function

    @contextmanager
    def start():
        clock = Clock()

        def timed(model, force=False):
            function = make_function(model, force)
            return lambda iterator: clock.step() or function(iterator)

        with (
            mock.patch.object(throughput, "time", clock),
            mock.patch.object(TrainableModel, "make_train_function", timed),
        ):
            yield

    return start


@pytest.fixture(scope="module")
def timed(clock, sim_dataset, tmp_path_factory):
    """A run whose steps took half a second, but for the first: its folder, and what it gave.

    It logs in the published format.
    """
    folder = tmp_path_factory.mktemp("timed")
    saving = {"save_checkpoint_path": folder / "saved", "checkpoint_every": 2}
    options = {"keep_checkpoints": 9, "log_format": "dllogger"}
    with clock():
        return folder, run(small_run_of(sim_dataset, folder, **saving, **options))


LATENCIES = {"latency_mean", "latency_p90", "latency_p95", "latency_p99"}


def published(results):
    """The objects of a published log's lines."""
    lines = (results / "log.json").read_text().splitlines()
    assert all(line.startswith("DLLL {") for line in lines)
    return [json.loads(line.removeprefix("DLLL ")) for line in lines]


def of_length(entries, length):
    return [e for e in entries if e["type"] == "LOG" and len(e["step"]) == length]


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_a_benchmark_measures_steps_beyond_the_data(config, timed, tmp_path, mode):
    """In the published format, which has a line for each step; it trains as a run does."""
    bench = {"benchmark": True, "benchmark_steps": 12, "benchmark_warmup_steps": 3}
    result = run(config(mode=mode, log_format="dllogger", **bench))
    assert LATENCIES | {"throughput"} <= set(result)
    assert 0 < result["latency_mean"] <= result["latency_p99"]
    if mode == "train":  # 300 rows in 4 batches of 64 and one of 44, three times less the warm-up
        rows = 3 * 300 - 3 * 64
        assert result["throughput"] == pytest.approx(rows / 12 * 1000 / result["latency_mean"])
        found = [step["total_loss"] for step in read_results(tmp_path / "results").steps]
        trained = [step["total_loss"] for step in read_results(timed[0] / "results").steps]
        assert found[:10] == trained
    assert not (tmp_path / "saved").exists()
    logged = published(tmp_path / "results")
    steps, (end,) = of_length(logged, 2), of_length(logged, 0)
    an_epoch = 5 if mode == "train" else 2
    assert [e["step"] for e in steps] == [[n // an_epoch, n % an_epoch] for n in range(15)]
    assert all(e["data"]["samples/s"] > 0 for e in steps)
    losses = [entry["data"].get("total_loss") for entry in (steps[0], steps[-1], end)]
    assert (losses[0] is not None) == (mode == "train")
    assert losses[2] == losses[1]  # that of the last step
    assert LATENCIES | {"throughput", "time"} <= set(end["data"])
    assert end["data"]["peak_memory_gib"] > 0.1
    assert read_results(tmp_path / "results").last["throughput"] > 0


def test_times_are_of_the_steps_that_this_process_ran_after_its_first(
    config, timed, tmp_path, clock
):
    first, second = read_results(timed[0] / "results").epochs
    assert first["throughput"] == first["samples/s"] == (300 - 64) / 2.0
    assert second["throughput"] == 300 / 2.5
    assert first["latency_mean"] == second["latency_p99"] == 500
    with clock():
        result = run(config(load_checkpoint_path=timed[0] / "saved/step-0000000002"))
    first, second = entries(tmp_path / "results", "epoch")
    assert first["throughput"] == (300 - 3 * 64) / 1.0  # the last two of five steps
    assert first["seconds"] == 61.0
    assert first["latency_mean"] == second["latency_p99"] == 500
    assert result["throughput"] == (300 - 3 * 64 + 300) / 3.5
    assert (result["samples"], result["time_to_train"]) == (300 - 2 * 64 + 300, 63.5)


def test_an_epoch_of_one_first_step_has_no_throughput(config, timed, tmp_path, clock):
    with clock():
        run(config(load_checkpoint_path=timed[0] / "saved/step-0000000004"))
    first, second = entries(tmp_path / "results", "epoch")
    assert first["throughput"] is None and "latency_mean" not in first
    assert (second["throughput"], second["latency_mean"]) == (300 / 2.5, 500)


def test_a_training_run_writes_the_published_lines(timed):
    folder, result = timed
    logged = published(folder / "results")
    heads = {e["metric"]: e["metadata"]["unit"] for e in logged if e["type"] == "METADATA"}
    assert heads["time_to_train"] == "s" and heads["test_auc"] is None
    assert [list(e) for e in logged[-1:]] == [
        ["timestamp", "datetime", "elapsedtime", "type", "step", "data"]
    ]
    assert float(logged[0]["elapsedtime"]) <= float(logged[-1]["elapsedtime"])
    steps, epochs, runs = (of_length(logged, length) for length in (2, 1, 0))
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
    found = read_results(folder / "results")
    assert [e["step"] for e in found.steps] == list(range(1, 11))
    assert [e["epoch"] for e in found.epochs] == [1, 2]
    assert found.epochs[0]["total_loss"] == epochs[0]["data"]["train_loss"]
    assert found.last["time_to_train"] == runs[0]["data"]["time_to_train"]
