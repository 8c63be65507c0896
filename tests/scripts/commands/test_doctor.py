"""``merlin-sim doctor``: what a sound and what a broken installation are told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stand_in import FOLDER, machine

PROGRAM = Path(sys.executable).with_name("merlin-sim")


@pytest.mark.slow
def test_a_sound_installation():
    result = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    for text in ("2.12.1", "0.28.1", "Gloo", "CPU: arrow and NumPy", "23.8.0"):
        assert text in result.stdout


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_gpu_that_tensorflow_cannot_use_is_reported_and_left_alone(tmp_path):
    """The driver counts one GPU, as Merlin does; TensorFlow, which is the real one, sees none."""
    shutil.copy(FOLDER / "pynvml.py", tmp_path)
    visible = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    result = subprocess.run(
        [PROGRAM, "doctor"],
        capture_output=True,
        text=True,
        timeout=280,
        env={
            **visible,
            "PYTHONPATH": str(tmp_path),
            "GPU_STAND_INS": machine({"name": "NVIDIA T4"}),
            "COLUMNS": "400",
        },
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0: NVIDIA T4 (driver 535.104.05, CUDA 12.2)" in result.stdout
    assert "runs on the CPU: TensorFlow" in result.stdout
