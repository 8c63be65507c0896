"""Times alternatives in turn, so that whatever else the machine does hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable


def in_turn(alternatives: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Return the rates of each: what it returns (samples), per second."""
    rates: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(rounds):
        for name, work in alternatives.items():
            begin = time.perf_counter()
            samples = work()
            rates[name].append(samples / (time.perf_counter() - begin))
    return rates
