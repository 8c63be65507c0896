"""Times alternatives in turn, so that whatever else the machine does hits all of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable


def in_turn(alternatives: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Return the median rate of each: what it returns (samples), per second."""
    rates: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(rounds):
        for name, work in alternatives.items():
            begin = time.perf_counter()
            samples = work()
            rates[name].append(samples / (time.perf_counter() - begin))
    return {name: statistics.median(found) for name, found in rates.items()}


def show(title: str, rates: dict[str, float], baseline: str) -> None:
    """Print the rates, and how many times the baseline each is."""
    load = os.getloadavg()[0]
    print(f"{title}  ({os.cpu_count()} cores, load {load:.1f})")
    for name, rate in rates.items():
        print(f"  {name:44} {rate:>12,.0f} samples/s {rate / rates[baseline]:>9,.2f}x")
