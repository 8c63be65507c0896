"""Where a step computes: on the device that the model is on, not on the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import run
from warm import warm

WORKER = Path(__file__).parents[2] / "support/workers/placement_worker.py"
OF_THE_HOST = {"_Arg", "_Retval", "_Send", "_Recv", "NoOp", "Const"}
"""What brings a function its arguments, and no more."""


@pytest.mark.slow
def test_all_of_a_step_and_of_a_prediction_is_computed_on_the_device(sim_dataset):
    """Two logical CPUs stand for a GPU and the host; they are made before TensorFlow starts."""
    done = run(warm(str(WORKER), str(sim_dataset)), seconds=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["variables"] == ["CPU:1"]
    assert reported["on_device"] > 500
    assert set(reported["on_host"]) <= OF_THE_HOST
