"""``merlin-sim doctor``: what it reports of a sound and of a broken installation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from in_process import answer
from stand_in import load, machine

pytestmark = pytest.mark.slow
PROGRAM = Path(sys.executable).with_name("merlin-sim")


def test_a_sound_installation_and_a_gpu_that_tensorflow_cannot_use(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    result = answer("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    for text in ("2.12.1", "0.28.1", "Gloo", "CPU: arrow and NumPy", "23.8.0"):
        assert text in result.stdout
    if tf.config.list_physical_devices("GPU"):
        return
    # The driver counts one GPU, as Merlin does; TensorFlow, which is the real one, sees none.
    monkeypatch.setitem(sys.modules, "pynvml", load("pynvml"))
    monkeypatch.setenv("GPU_STAND_INS", machine({"name": "NVIDIA T4"}))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    result = answer("doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0: NVIDIA T4 (driver 535.104.05, CUDA 12.2)" in result.stdout
    assert "runs on the CPU: TensorFlow" in result.stdout


def test_a_broken_tensorflow_is_found(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart is elsewhere')")
    result = subprocess.run(
        [PROGRAM, "doctor"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 2
    assert "libcudart is elsewhere" in result.stdout
    assert "training cannot run here: see TensorFlow" in result.stderr
    assert "Traceback" not in result.stderr
