from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.engine import schedulers
from merlin_sim.workflows.engine.schedulers import DaskCluster, SingleProcess, open_scheduler


def square(number):
    if number == 13:
        raise MerlinSimError("13 brings bad luck")
    return number**2


@pytest.mark.parametrize("workers", [1, 3])
def test_a_single_process_runs_everything(workers):
    with open_scheduler("single", workers) as scheduler:
        assert scheduler.workers == workers
        assert sorted(scheduler.run(square, range(10))) == [n**2 for n in range(10)]
        with pytest.raises(MerlinSimError, match="bad luck"):
            list(scheduler.run(square, range(20)))


def test_auto_is_this_process_unless_workers_are_asked_for():
    for workers in (None, 1):
        with open_scheduler("auto", workers) as scheduler:
            assert isinstance(scheduler, SingleProcess)


def test_what_cannot_be_reached_is_said(monkeypatch):
    monkeypatch.setattr(schedulers, "SECONDS_TO_CONNECT", 1)
    with pytest.raises(MerlinSimError, match="no Dask scheduler answers"):
        with open_scheduler("tcp://127.0.0.1:1"):
            pass
    with pytest.raises(MerlinSimError, match="`scheduler` should be auto"):
        with open_scheduler("everywhere"):
            pass


@pytest.mark.slow
def test_a_local_cluster_works_and_hands_errors_on():
    with open_scheduler("auto", 2) as scheduler:
        assert isinstance(scheduler, DaskCluster)
        assert scheduler.workers == 2
        assert sorted(scheduler.run(square, range(10))) == [n**2 for n in range(10)]
        with pytest.raises(MerlinSimError, match="bad luck"):
            list(scheduler.run(square, range(20)))


@pytest.fixture
def running_cluster(tmp_path):
    """A scheduler and a worker, started as an operator would start them."""
    file = tmp_path / "scheduler.json"
    common = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_scheduler"]
    options = ["--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen([*dask, *options], **common)
    worker = None
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        worker = subprocess.Popen(
            [
                sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_worker",
                "--scheduler-file", str(file), "--nthreads", "1", "--no-nanny", "--no-dashboard",
                "--local-directory", str(tmp_path),
            ],
            **common,
        )  # fmt: skip
        yield json.loads(file.read_text())["address"]
    finally:
        for process in (worker, scheduler):
            if process is not None:
                process.kill()
                process.wait()


@pytest.mark.slow
def test_a_running_cluster_gives_the_same_dataset(
    running_cluster, raw, dataset, tmp_path, preprocess
):
    from distributed import Client

    with Client(running_cluster, timeout="60s") as client:
        client.wait_for_workers(1, timeout=60)
    output = preprocess(raw, tmp_path / "dataset", "--scheduler", running_cluster)
    for name in ("train/part.0.parquet", "test/part.0.parquet", "workflow.json"):
        assert (output / name).read_bytes() == (dataset / name).read_bytes()
