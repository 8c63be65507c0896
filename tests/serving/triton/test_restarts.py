"""A server that ends again and again is given up."""

from __future__ import annotations

import pytest

from merlin_sim.serving.triton.bundled_server import ServerError
from merlin_sim.serving.triton.restarts import Restarts


def test_ends_far_apart_are_borne_and_a_burst_is_not():
    times = iter([0, 100, 200, 201, 202, 203])
    restarts = Restarts(most=4, within=50, clock=lambda: next(times))
    for _ in range(5):
        restarts.count(-11)
    message = (
        r"ended 4 times within 50 s, at last by signal 11 \(SIGSEGV\): it is not started again"
    )
    with pytest.raises(ServerError, match=message):
        restarts.count(-11)
