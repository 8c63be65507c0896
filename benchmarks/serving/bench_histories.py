"""Appends and reads a second of a store of histories, by two processes.

    python benchmarks/serving/bench_histories.py [--redis redis://127.0.0.1:6379/0]

2,000 users with 1,000 interactions each. Each of two processes appends one interaction a call for
some seconds, then reads a thousand a call: users are drawn at random.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from pathlib import Path

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import Interaction, as_text

USERS, LENGTH = 2_000, 1_000
SECONDS = 4.0
PROCESSES = 2


def fill(address: str) -> float:
    """Write every user's history; seconds."""
    started = time.perf_counter()
    with open_store(address, create=True).load(overwrite=True) as filling:
        for user in range(USERS):
            items = random.Random(user).choices(range(1_000_000), k=LENGTH)
            filling.append(
                [
                    Interaction(as_text(f"U{user}"), as_text(f"B{item:07d}"), 1_700_000_000 + index)
                    for index, item in enumerate(items)
                ]
            )
    return time.perf_counter() - started


def count(address: str, what: str, seed: int) -> tuple[int, float]:
    """Do it for some seconds: calls, and the slowest of a hundred (99th percentile) in ms."""
    store, draws = open_store(address), random.Random(seed)
    took = []
    end = time.perf_counter() + SECONDS
    while (begin := time.perf_counter()) < end:
        user = as_text(f"U{draws.randrange(USERS)}")
        if what == "appends":
            item = as_text(f"B{draws.randrange(1_000_000):07d}")
            store.append([Interaction(user, item, 1_800_000_000 + len(took))])
        else:
            assert len(store.read(user, LENGTH).items) == LENGTH
        took.append(time.perf_counter() - begin)
    return len(took), 1000 * sorted(took)[int(len(took) * 0.99)]


def measure(name: str, address: str) -> None:
    """Print a store's lines."""
    seconds = fill(address)
    print(f"{name}: filled with {USERS * LENGTH:,} interactions in {seconds:.1f} s")
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for what in ("appends", "reads"):
            runs = pool.starmap(count, [(address, what, seed) for seed in range(PROCESSES)])
            rate = sum(calls for calls, _ in runs) / SECONDS
            print(f"{name}: {rate:,.0f} {what}/s, p99 {max(slow for _, slow in runs):.2f} ms")


def main() -> None:
    """Measure a file, and a server where one is named."""
    parser = argparse.ArgumentParser(description="Measure stores of histories.")
    parser.add_argument("--redis", metavar="ADDRESS", help="A server whose database may be lost.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "histories.sqlite"
        measure("file", str(path))
        print(f"file: {path.stat().st_size / USERS / LENGTH:.1f} bytes an interaction")
    if arguments.redis:
        measure("redis", arguments.redis)


if __name__ == "__main__":
    main()
