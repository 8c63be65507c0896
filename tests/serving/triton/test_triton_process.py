"""What a server writes is passed on, but for what means nothing."""

from __future__ import annotations

import os
import sys

import pytest

from merlin_sim.serving.triton.triton_process import NOISE, Relay, server_environment, start_process

WRITER = """
import sys
print("E1120 server.cc:241] \\"CudaDriverHelper has not been initialized.\\"", file=sys.stderr)
print("E1120 something that matters", file=sys.stderr)
"""


@pytest.mark.parametrize("hidden", [(), NOISE])
def test_standard_error_is_passed_on(hidden, capfd):
    process = start_process([sys.executable, "-c", WRITER], dict(os.environ))
    relay = Relay(process, hidden)
    assert process.wait(60) == 0
    relay.finish(60)
    written = capfd.readouterr().err
    assert "E1120 something that matters\n" in written
    assert ("CudaDriverHelper" in written) == (not hidden)


def test_models_share_the_memory_of_a_gpu(monkeypatch, tmp_path):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    assert server_environment(tmp_path / "a" / "b")["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    assert server_environment(tmp_path / "a" / "b")["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
