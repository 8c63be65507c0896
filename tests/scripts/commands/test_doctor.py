"""``merlin-sim doctor``: what a sound and what a broken installation are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("merlin-sim")


@pytest.mark.slow
def test_a_sound_installation():
    result = subprocess.run([PROGRAM, "doctor"], capture_output=True, text=True, timeout=120)
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
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 2
    assert "libcudart is elsewhere" in result.stdout
    assert "training cannot run here: see TensorFlow" in result.stderr
    assert "Traceback" not in result.stderr
