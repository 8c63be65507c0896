"""Each rank sees its own GPU only, before anything touches CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stand_in import FOLDER, machine

from merlin_sim.foundation.gpus import Gpu, Gpus
from merlin_sim.foundation.ranks import LocalRank
from merlin_sim.parallel.ranks.own_gpu import is_taken, take

PROGRAM = Path(sys.executable).with_name("merlin-sim")
FOUR = Gpus(tuple(Gpu(device_id) for device_id in "0123"), "535", (12, 2))
NAMES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MERLIN_SIM_GPU", "SLURM_LOCALID")
NAMES += ("SLURM_GPUS_ON_NODE", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_MEMORY_ALLOCATION")


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what a test sets is taken back
        monkeypatch.delenv(name)


def test_a_rank_sees_its_own_gpu_only(monkeypatch):
    monkeypatch.setenv("TF_MEMORY_ALLOCATION", "0.3")
    assert take(FOUR, LocalRank(2, 4)) == "2"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # NVML's order, not CUDA's fastest first
    assert is_taken()
    assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert os.environ["TF_MEMORY_ALLOCATION"] == "0.3", "the user's"
    assert take(Gpus((Gpu("2"),)), LocalRank(2, 4)) == "2", "a child of a rank keeps the GPU"


OF_SLURM = {"SLURM_LOCALID": "3", "SLURM_GPUS_ON_NODE": "4"}


@pytest.mark.parametrize(
    ("given", "rank", "environ", "device_id"),
    [
        (("GPU-77", "5"), LocalRank(0, 2), {}, "GPU-77"),
        (("0",), LocalRank(3, 4), OF_SLURM, "0"),  # Slurm shows it alone
    ],
)
def test_a_rank_takes_of_what_it_was_given(monkeypatch, given, rank, environ, device_id):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert take(Gpus(tuple(map(Gpu, given))), rank) == device_id


@pytest.mark.parametrize(
    ("gpus", "rank"), [(FOUR, LocalRank(4, 5)), (Gpus(), LocalRank(1, 2))], ids=["few", "none"]
)
def test_more_ranks_than_gpus_hide_none(gpus, rank):
    assert take(gpus, rank) is None
    assert not is_taken() and "CUDA_VISIBLE_DEVICES" not in os.environ
    assert gpus is FOUR or not {name for name in NAMES if name in os.environ}


@pytest.mark.slow
def test_a_rank_takes_its_gpu_and_the_cores_near_it_before_tensorflow_is_imported(
    tmp_path, sim_dataset
):
    cores = sorted(os.sched_getaffinity(0))
    near = [cores[-1], cores[0]]  # not those that a rank would be dealt by its number
    (tmp_path / "tensorflow.py").write_text(
        "import os, sys\n"
        "early = {'merlin.core', 'numba', 'cudf', 'cupy', 'horovod'} & set(sys.modules)\n"
        "print('sees', os.environ['CUDA_VISIBLE_DEVICES'], 'after', sorted(early))\n"
        "print('on', sorted(os.sched_getaffinity(0)))\n"
        "sys.exit(0)\n"
    )
    result = subprocess.run(
        [PROGRAM, "train", "--dataset_dir", sim_dataset, "--results_dir", tmp_path / "results"],
        capture_output=True,
        text=True,
        timeout=280,
        env={
            **{name: value for name, value in os.environ.items() if name not in NAMES},
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(FOLDER)]),
            "GPU_STAND_INS": machine(*({"cores": [core]} for core in near)),
            "HOROVOD_LOCAL_RANK": "1",
            "HOROVOD_LOCAL_SIZE": "2",
        },
    )
    assert result.stdout == f"sees 1 after []\non [{near[1]}]\n", result.stderr
