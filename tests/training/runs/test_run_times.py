"""Throughput, latency and seconds: of which steps a run and a benchmark tell them."""

from __future__ import annotations

import json

import pytest
from processes import entries

from merlin_sim.models.trainable_model import TrainableModel
from merlin_sim.training.callbacks import throughput
from merlin_sim.training.runs.run import run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_a_benchmark_measures_steps_beyond_the_data(config, tmp_path, mode):
    bench = {"benchmark": True, "benchmark_steps": 12, "benchmark_warmup_steps": 3}
    result = run(config(mode=mode, **bench))
    keys = {"throughput", "latency_mean", "latency_p90", "latency_p95", "latency_p99"}
    assert keys <= set(result)
    assert 0 < result["latency_mean"] <= result["latency_p99"]
    if mode == "train":  # 300 rows in 4 batches of 64 and one of 44, three times less the warm-up
        rows = 3 * 300 - 3 * 64
        assert result["throughput"] == pytest.approx(rows / 12 * 1000 / result["latency_mean"])
    assert not (tmp_path / "saved").exists()
    logged = (tmp_path / "results/log.json").read_text().splitlines()[-1]
    assert json.loads(logged)["peak_memory_gib"] > 0.1


@pytest.mark.slow
def test_a_benchmark_reports_the_losses_of_its_last_step(config, tmp_path):
    run(config(benchmark=True, benchmark_steps=6, benchmark_warmup_steps=1))
    run(config(results_dir=tmp_path / "trained", save_checkpoint_path=None))
    [benchmark] = entries(tmp_path / "results", "benchmark")
    steps = {entry["step"]: entry for entry in entries(tmp_path / "trained", "step")}
    assert benchmark["step"] == 7
    assert benchmark["total_loss"] == steps[7]["total_loss"]


class Clock:
    """Stands for the module ``time``: only steps take time, the first of a process 60 seconds."""

    def __init__(self):
        self.now, self.steps = 0.0, 0

    def perf_counter(self):
        return self.now

    def step(self):
        self.now += 0.5 if self.steps else 60.0
        self.steps += 1


@pytest.fixture
def clock(monkeypatch):
    """Gives each run a new clock, as each process would have its own."""
    call = TrainableModel._train_on

    def start():
        clock = Clock()

        def timed(model, steps):
            clock.step()
            return call(model, steps)

        monkeypatch.setattr(throughput, "time", clock)
        monkeypatch.setattr(TrainableModel, "_train_on", timed)

    return start


@pytest.mark.slow
def test_times_are_of_the_steps_that_this_process_ran_after_its_first(config, tmp_path, clock):
    clock()
    run(config(checkpoint_every=2, keep_checkpoints=9))
    first, second = entries(tmp_path / "results", "epoch")
    assert first["throughput"] == first["samples/s"] == (300 - 64) / 2.0
    assert second["throughput"] == 300 / 2.5
    assert first["latency_mean"] == second["latency_p99"] == 500
    clock()
    second_step = {"load_checkpoint_path": tmp_path / "saved/step-0000000002"}
    result = run(config(**second_step, results_dir=tmp_path / "resumed"))
    first, second = entries(tmp_path / "resumed", "epoch")
    assert first["throughput"] == (300 - 3 * 64) / 1.0  # the last two of five steps
    assert first["seconds"] == 61.0
    assert first["latency_mean"] == second["latency_p99"] == 500
    assert result["throughput"] == (300 - 3 * 64 + 300) / 3.5
    assert (result["samples"], result["time_to_train"]) == (300 - 2 * 64 + 300, 63.5)


@pytest.mark.slow
def test_an_epoch_of_one_first_step_has_no_throughput(config, tmp_path, clock):
    clock()
    run(config(global_batch_size=512, save_checkpoint_path=None))
    first, second = entries(tmp_path / "results", "epoch")
    assert first["throughput"] is None and "latency_mean" not in first
    assert (second["throughput"], second["latency_mean"]) == (600, 500)
