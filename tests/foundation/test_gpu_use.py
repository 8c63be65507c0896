"""A GPU that TensorFlow or cudf cannot use is left alone, with the reason."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import merlin.core.has_gpu
import pytest
import tensorflow as tf
from stand_in import FOLDER, load
from stand_in import machine as machine_with

from merlin_sim.foundation import gpus, process_wide
from merlin_sim.foundation.gpus import Gpu, Gpus, why_not_cudf, why_not_tensorflow
from merlin_sim.scripts.options.devices import settle_preprocessing, settle_training

CUPY = load("cupy")
ONE = Gpus((Gpu("0"),), "535.104.05", (12, 2))


@pytest.fixture
def machine(monkeypatch):
    """Choose what can use the machine's GPU."""
    monkeypatch.setattr(merlin.core.has_gpu, "HAS_GPU", True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def choose(tensorflow=True, cudf=True, libraries=True):
        devices = ["gpu"] if tensorflow else []
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: devices)
        monkeypatch.setattr(gpus, "_opens", lambda name: libraries)
        for name in ("cudf", "cupy"):
            module = ModuleType(name)
            module.__spec__ = SimpleNamespace()  # found, as an installed one is
            monkeypatch.setitem(sys.modules, name, module)
        sys.modules["cupy"].arange = CUPY.arange
        if cudf is True:
            sys.modules["cudf"].Series = CUPY.array

    return choose


@pytest.mark.slow
def test_a_gpu_that_both_can_use_is_used(machine):
    machine()
    assert settle_training(ONE) is None
    assert merlin.core.has_gpu.HAS_GPU
    assert settle_preprocessing(ONE) is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    machine(tensorflow=False, cudf=False)
    assert settle_training(Gpus()) is None  # where there is none nothing is said
    assert settle_preprocessing(Gpus()) is None


def test_without_tensorflows_libraries_a_run_is_on_the_cpu(machine):
    machine(tensorflow=False, libraries=False)
    reported = settle_training(ONE)
    assert reported.startswith("runs on the CPU: TensorFlow cannot open libcudart.so.11.0, ")
    assert reported.endswith("libcudnn.so.8 (make setup DEVICE=gpu).")
    assert not merlin.core.has_gpu.HAS_GPU


@pytest.mark.slow
def test_without_cudf_the_model_keeps_the_gpu(machine):
    machine(cudf=False)
    reported = settle_training(ONE)
    assert reported.startswith(
        "the model runs on the GPU, its feed on the CPU: cudf cannot be used: "
    )
    assert not merlin.core.has_gpu.HAS_GPU
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"  # TensorFlow's
    assert settle_preprocessing(ONE).startswith("runs on the CPU: cudf cannot be used: ")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""  # in every worker


def test_a_driver_that_is_too_old_is_named(machine, monkeypatch):
    machine(tensorflow=False)
    old = Gpus((Gpu("0"),), "418.39", (10, 1))
    assert why_not_tensorflow(old) == (
        "the driver 418.39 knows CUDA 10.1, CUDA 11 is needed: driver 450.80.02 or newer"
    )
    monkeypatch.setattr(gpus, "_cuda_of_cudf", lambda: 12)
    assert why_not_cudf(Gpus((Gpu("0"),), "470.57.02", (11, 4))) == (
        "cudf: the driver 470.57.02 knows CUDA 11.4, CUDA 12 is needed: driver 525.60.13 or newer"
    )


@pytest.mark.slow
def test_a_program_of_ones_own_is_told_too():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow can use the GPU that is here")
    code = "import merlin_sim as ms; print(ms.DINModel.__name__, ms.TableLog.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
            "PYTHONPATH": str(FOLDER),
            "GPU_STAND_INS": machine_with({}),
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "DINModel TableLog\n"), done.stderr
    assert done.stderr.count("UserWarning: merlin_sim: runs on the CPU: ") == 1
    installed = importlib.util.find_spec("nvidia") is not None
    reason = "TensorFlow finds no GPU that it can use" if installed else "make setup DEVICE=gpu"
    assert reason in done.stderr


def test_in_python_a_gpu_that_cannot_be_used_is_hidden_with_a_warning(monkeypatch):
    monkeypatch.setattr(merlin.core, "has_gpu", merlin.core.has_gpu)  # imported anew below
    monkeypatch.delitem(sys.modules, "merlin.core.has_gpu")
    monkeypatch.setattr(process_wide, "_gpu_is_hidden", False)
    monkeypatch.setattr(gpus, "why_not_merlin", lambda gpus: "runs on the CPU: it is too old.")
    with pytest.warns(UserWarning, match="merlin_sim: runs on the CPU: it is too old"):
        process_wide.hide_unusable_gpu()
    assert sys.modules["merlin.core.has_gpu"].HAS_GPU is False
    process_wide.hide_unusable_gpu()  # once
