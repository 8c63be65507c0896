"""What a server writes is passed on, but for what means nothing."""

from __future__ import annotations

import sys

import pytest
from held_server import until

from merlin_sim.serving.triton.triton_process import NOISE, OwnProcess, server_environment

WRITER = """
import sys
print("E1120 server.cc:241] \\"CudaDriverHelper has not been initialized.\\"", file=sys.stderr)
print("E1120 something that matters", file=sys.stderr)
"""


@pytest.mark.parametrize("hidden", [(), NOISE])
def test_standard_error_is_passed_on(hidden, capfd):
    process = OwnProcess([sys.executable, "-c", WRITER], None, 60.0, hidden)
    until(lambda: process.ended() is not None)
    assert process.end() == 0
    written = capfd.readouterr().err
    assert "E1120 something that matters\n" in written
    assert ("CudaDriverHelper" in written) == (not hidden)


def test_models_share_the_memory_of_a_gpu(monkeypatch, tmp_path):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    assert server_environment(tmp_path / "a" / "b")["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert server_environment(tmp_path / "a" / "b")["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
