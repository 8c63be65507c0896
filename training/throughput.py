"""Throughput and latency of a fixed number of steps, the first of them not counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from .loader import Loader
from .run_log import RunLog

Step = Callable[[dict[str, tf.Tensor], tf.Tensor, int], Any]


def measure(
    feed: Loader, step: Step, steps: int | None, warmup_steps: int, log: RunLog, title: str
) -> dict[str, Any]:
    """Measure ``steps`` steps, feed included, going through the data as often as that takes.

    Args:
        feed: this rank's rows.
        step: called with columns, labels and the rows of the global batch; returns when done.
        steps: those that are measured; None for one pass over the data, warm-up included.
        warmup_steps: those before, which are not measured.
        log: shows progress.
        title: of the progress line.

    Returns:
        The published keys: throughput (rows of all ranks a second) and latencies in milliseconds.
    """
    latencies: list[float] = []
    rows = 0
    if steps is None:
        steps = feed.plan(0).steps
        warmup_steps = min(warmup_steps, steps - 1)
    else:
        steps += warmup_steps
    with log.progress(title, steps) as line:
        before = time.perf_counter()
        for done, (columns, labels, count) in enumerate(_endless(feed), start=1):
            step(columns, labels, count)
            now = time.perf_counter()
            if done > warmup_steps:
                latencies.append(now - before)
                rows += count
            before = now
            line.update(
                done, f"{count / max(1e-9, latencies[-1]):,.0f} samples/s" if latencies else ""
            )
            if done == steps:
                break
    feed.stop()
    return {"throughput": rows / sum(latencies), **latency_values(latencies)}


def latency_values(latencies: list[float]) -> dict[str, float]:
    """Return mean and high percentiles under their published names, in milliseconds.

    >>> latency_values([1.0, 3.0])["latency_mean"]
    2000.0

    Args:
        latencies: in seconds.
    """
    shown = 1000 * np.array(latencies)
    percentiles = {f"latency_p{p}": float(np.percentile(shown, p)) for p in (90, 95, 99)}
    return {"latency_mean": float(np.mean(shown)), **percentiles}


def _endless(feed: Loader) -> Iterator[tuple[Any, Any, int]]:
    epoch = 0
    plan = feed.plan(0)
    while True:
        feed.start_at(epoch)
        for index, (columns, labels) in enumerate(feed):
            yield columns, labels, plan.batch_rows(index)
        epoch += 1
