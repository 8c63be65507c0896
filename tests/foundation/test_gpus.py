"""What NVML tells of the GPUs, and why one is left alone; pynvml is a stand-in."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import merlin.core.has_gpu
import pynvml
import pytest
import tensorflow as tf
from stand_in import FOLDER, differences, load
from stand_in import machine as machine_with

from merlin_sim.foundation.gpus import VISIBLE, Gpu, Gpus, look, why_not_cudf, why_not_tensorflow
from merlin_sim.foundation.ranks import local_rank
from merlin_sim.scripts.options.devices import settle_preprocessing, settle_training

NVML = load("pynvml")


@pytest.fixture
def driver(monkeypatch):
    """Put a driver with GPUs into the machine."""

    def install(*gpus, visible=None, **facts):
        monkeypatch.setitem(sys.modules, "pynvml", NVML)
        monkeypatch.setenv("GPU_STAND_INS", machine_with(*gpus, **facts))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return look()

    return install


def test_gpus_are_reported_with_their_cores(driver):
    gpus = driver({"cores": [0, 1]}, {"cores": [1], "name": "NVIDIA H100"})
    assert [gpu.device_id for gpu in gpus.visible] == ["0", "1"]
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
    ("visible", "device_ids"),
    [
        ("", []),
        ("2,0", ["2", "0"]),
        ("1, 2", ["1", "2"]),
        ("1,7,2", ["1"]),  # CUDA hides what stands behind an unknown one
        ("GPU-00000001-0000", ["GPU-00000001-0000"]),
        ("GPU-ab,1", ["GPU-ab", "1"]),  # the beginning of a UUID, which NVML does not know
    ],
)
def test_only_visible_gpus_are_reported(driver, visible, device_ids):
    gpus = driver({}, {}, {}, visible=visible)
    assert [gpu.device_id for gpu in gpus.visible] == device_ids


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


CUPY = load("cupy")
ONE = Gpus((Gpu("0"),), "535.104.05", (12, 2))


def open_library(name):
    return object()


def missing(name):
    raise OSError(f"{name}: cannot open shared object file")


@pytest.fixture
def machine(monkeypatch):
    """Choose what can use the machine's GPU."""
    monkeypatch.setattr(merlin.core.has_gpu, "HAS_GPU", True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def choose(tensorflow=True, cudf=True, libraries=True):
        devices = ["gpu"] if tensorflow else []
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices)
        monkeypatch.setattr(ctypes, "CDLL", open_library if libraries else missing)
        for name in ("cudf", "cupy"):
            module = ModuleType(name)
            module.__spec__ = SimpleNamespace()  # found, as an installed one is
            monkeypatch.setitem(sys.modules, name, module)
        sys.modules["cupy"].arange = CUPY.arange
        if cudf is True:
            sys.modules["cudf"].Series = CUPY.array

    return choose


@pytest.mark.slow
def test_a_gpu_that_both_can_use_is_used_and_without_cudf_the_model_keeps_it(machine):
    machine()
    assert settle_training(ONE) is settle_preprocessing(ONE) is None
    assert merlin.core.has_gpu.HAS_GPU
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    machine(tensorflow=False, cudf=False)
    assert settle_training(Gpus()) is None  # where there is none nothing is said
    assert settle_preprocessing(Gpus()) is None
    machine(cudf=False)
    reported = settle_training(ONE)
    assert reported.startswith(
        "the model runs on the GPU, its feed on the CPU: cudf cannot be used: "
    )
    assert not merlin.core.has_gpu.HAS_GPU
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"  # TensorFlow's
    assert settle_preprocessing(ONE).startswith("runs on the CPU: cudf cannot be used: ")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""  # in every worker


def test_without_tensorflows_libraries_a_run_is_on_the_cpu(machine):
    machine(tensorflow=False, libraries=False)
    reported = settle_training(ONE)
    assert reported.startswith("runs on the CPU: TensorFlow cannot open libcudart.so.11.0, ")
    assert reported.endswith("libcudnn.so.8 (make setup DEVICE=gpu).")
    assert not merlin.core.has_gpu.HAS_GPU


def test_a_driver_that_is_too_old_is_named(machine, monkeypatch):
    machine(tensorflow=False)
    old = Gpus((Gpu("0"),), "418.39", (10, 1))
    assert why_not_tensorflow(old) == (
        "the driver 418.39 knows CUDA 10.1, CUDA 11 is needed: driver 450.80.02 or newer"
    )
    packages = {"cudf": ["cudf-cu12"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: packages)
    assert why_not_cudf(Gpus((Gpu("0"),), "470.57.02", (11, 4))) == (
        "cudf: the driver 470.57.02 knows CUDA 11.4, CUDA 12 is needed: driver 525.60.13 or newer"
    )


NO_CUDA = """
from types import SimpleNamespace

config = SimpleNamespace(list_physical_devices=lambda kind: [])
sysconfig = SimpleNamespace(get_build_info=dict)
"""


@pytest.mark.slow
def test_a_program_of_ones_own_is_reported_too(tmp_path):
    """Whatever name it asks for first, before Merlin is imported; TensorFlow is a stand-in here."""
    (tmp_path / "tensorflow.py").write_text(NO_CUDA)
    code = "import merlin_sim as ms; print(ms.DatasetDirectory.__name__, ms.FeatureSpec.__name__)\n"
    code += "import merlin.core.has_gpu; print(merlin.core.has_gpu.HAS_GPU)"
    environment = {name: value for name, value in os.environ.items() if name != VISIBLE}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **environment,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(FOLDER)]),
            "GPU_STAND_INS": machine_with({}),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "DatasetDirectory FeatureSpec\nFalse\n"), (
        done.stderr
    )
    assert done.stderr.count("UserWarning: merlin_sim: runs on the CPU: ") == 1
    assert "this TensorFlow is built without CUDA" in done.stderr
