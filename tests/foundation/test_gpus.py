"""What NVML tells of the GPUs, by a stand-in for pynvml that is compared with the real one."""

from __future__ import annotations

import os
import sys

import pynvml
import pytest
from stand_in import differences, load, machine

from merlin_sim.foundation.gpus import look
from merlin_sim.foundation.ranks import local_rank

NVML = load("pynvml")


@pytest.fixture
def driver(monkeypatch):
    """Put a driver with GPUs into the machine."""

    def install(*gpus, visible=None, **facts):
        monkeypatch.setitem(sys.modules, "pynvml", NVML)
        monkeypatch.setenv("GPU_STAND_INS", machine(*gpus, **facts))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return look()

    return install


def test_gpus_are_reported_with_their_cores(driver):
    gpus = driver({"cores": [0, 1]}, {"cores": [1], "name": "NVIDIA H100"})
    assert [gpu.place for gpu in gpus.visible] == ["0", "1"]
    assert gpus.visible[0].cores == {0, 1}
    assert driver({}).visible[0].cores == frozenset()
    assert gpus.visible[1].name == "NVIDIA H100"
    assert (gpus.driver, gpus.cuda) == ("535.104.05", (12, 2))
    old = driver({}, driver="470.57.02", cuda=11040)
    assert old.lacks(11) is None
    assert old.lacks(12) == (
        "the driver 470.57.02 knows CUDA 11.4, CUDA 12 is needed: driver 525.60.13 or newer"
    )
    assert differences(NVML, pynvml, "pynvml") == []  # the stand-in has what pynvml has


@pytest.mark.parametrize(
    ("visible", "places"),
    [
        ("", []),
        ("2,0", ["2", "0"]),
        ("1, 2", ["1", "2"]),
        ("1,7,2", ["1"]),  # CUDA hides what stands behind an unknown one
        ("GPU-00000001-0000", ["GPU-00000001-0000"]),
        ("GPU-ab,1", ["GPU-ab", "1"]),  # the beginning of a UUID, which NVML does not know
    ],
)
def test_only_visible_gpus_are_reported(driver, visible, places):
    gpus = driver({}, {}, {}, visible=visible)
    assert [gpu.place for gpu in gpus.visible] == places


def test_without_a_driver_there_is_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", NVML)
    monkeypatch.delenv("GPU_STAND_INS", raising=False)
    gpus = look()
    assert (gpus.visible, gpus.driver) == ((), "")
    assert gpus.problem == "NVML Shared Library Not Found"


LAUNCHERS = {
    "horovodrun": ({"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2"}, (1, 2)),
    "mpirun": ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (3, 4)),
    "srun": (
        {"SLURM_LOCALID": "2", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4", "SLURM_NODEID": "2"},
        (2, 4),
    ),
    "sbatch without srun": ({"SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "8"}, (0, 1)),
    "srun on the first of unequal nodes": (
        {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3),1,4(x2)", "SLURM_NODEID": "3"},
        (0, 1),
    ),
    "none": ({}, (0, 1)),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_launcher_reports_the_local_rank(monkeypatch, launcher):
    for name in list(os.environ):
        if name.startswith(("HOROVOD_", "OMPI_", "SLURM_", "MPI_")):
            monkeypatch.delenv(name)
    environment, expected = LAUNCHERS[launcher]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert local_rank() == expected
