"""How a rank joins a run, and what it refuses. GPUs cannot be here: they and Horovod are mocks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from unittest import mock

import pytest
from warm import warm

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks, rank_batch_size
from merlin_sim.parallel.ranks import collectives
from merlin_sim.parallel.ranks.collectives import start


@pytest.fixture
def launch(monkeypatch):
    """Let this process be one of several, on a machine with GPUs."""
    monkeypatch.delenv("MERLIN_SIM_GPU", raising=False)
    for name in ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)

    def join(launched=1, joined=1, gpus=0, local_rank=0, installed=True):
        if launched > 1:
            monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", str(launched))
        hvd = mock.Mock(
            rank=lambda: local_rank,
            size=lambda: joined,
            local_rank=lambda: local_rank,
            local_size=lambda: joined,
        )
        monkeypatch.setattr(collectives, "hvd", hvd if installed else None)
        devices = mock.Mock()
        devices.list_physical_devices.return_value = [f"gpu {i}" for i in range(gpus)]
        monkeypatch.setattr(collectives.tf, "config", devices)
        return start()

    return join


def test_which_ranks_may_start(launch, monkeypatch):
    assert launch(gpus=2) == Ranks(), "a process alone may see several GPUs"
    assert launch(installed=False) == Ranks(), "without Horovod a process is alone"
    assert launch(launched=4, joined=4).size == 4, "ranks may share a CPU"
    monkeypatch.setenv("MERLIN_SIM_GPU", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    assert launch(launched=4, joined=4, gpus=1, local_rank=3) == Ranks(3, 4, 3, 4)


@pytest.mark.parametrize(
    ("started", "said"),
    [
        (
            {"launched": 2, "joined": 2, "gpus": 2, "local_rank": 1},
            "each rank should see one GPU. Received: 2 of them",
        ),
        (
            {"launched": 3, "joined": 3, "gpus": 2},
            "3 ranks were started on a machine with 2 GPUs",
        ),
        (
            {"launched": 2, "joined": 1},
            "built without MPI.*HOROVOD_WITH_MPI=1 make setup",
        ),
        (
            {"launched": 2, "installed": False},
            "2 processes .* Horovod is not.*HOROVOD=1 make setup",
        ),
    ],
    ids=["all GPUs", "too few GPUs", "no MPI", "no Horovod"],
)
def test_ranks_that_cannot_work_are_refused(launch, started, said):
    with pytest.raises(MerlinSimError, match=said):
        launch(**started)
    if "local_rank" in started:
        with pytest.raises(MerlinSimError, match="sets CUDA_VISIBLE_DEVICES before it imports"):
            collectives.joined()  # as `compile` and `fit` ask in a program of one's own


@pytest.mark.slow
def test_a_run_starts_on_a_gpu_that_merlin_has_configured():
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    worker = Path(__file__).parents[2] / "support/workers/merlin_on_gpus.py"
    result = subprocess.run(
        warm(str(worker)), capture_output=True, text=True, timeout=280, env=environment
    )
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout.splitlines()[-1])
    assert seen == {"devices": 1, "share": 0.85}


def test_a_global_batch_must_be_shared_equally():
    assert rank_batch_size(96, Ranks(0, 4)) == 24
    with pytest.raises(MerlinSimError, match=r"divisible by the number of ranks \(4\).*: 98"):
        rank_batch_size(98, Ranks(0, 4))
