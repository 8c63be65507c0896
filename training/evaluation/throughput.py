"""Throughput and latency of a fixed number of steps, the first of them not counted."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ..run_log import RunLog

Step = Callable[[Any], tuple[int, Mapping[str, float]]]
"""Does a step with what a feed gives for it; tells the samples of the global batch, and what is
logged of it."""


class MeasuredFeed(Protocol):
    """Batches of one epoch after the other."""

    def plan(self, epoch: int) -> Any:
        """Say how many steps an epoch has, and the rows of each."""

    def start_at(self, epoch: int) -> None:
        """Let the next iteration begin with an epoch."""

    def inputs(self) -> Generator[Any, None, None]:
        """Give what each step of the epoch is given."""


@dataclass
class StepTimes:
    """How fast the steps went that this process ran, its very first one left out.

    Within the first step of a process TensorFlow makes and compiles the graph: seconds that say
    nothing of how fast the others are.

    >>> times = StepTimes()
    >>> for samples, seconds in [(8, 60.0), (8, 1.0), (8, 3.0)]:
    ...     times.add(samples, seconds)
    >>> times.rate, times.values()["latency_mean"]
    (4.0, 2000.0)
    """

    samples: int = 0
    """Samples of those steps, over all ranks."""
    seconds: float = 0.0
    """What those steps took, waiting for their batches included."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of each of those steps in the epoch."""
    _has_begun: bool = False

    def begin_epoch(self) -> None:
        """Forget the steps before; the process is as warm as it was."""
        self.samples, self.seconds, self.latencies = 0, 0.0, []

    def add(self, samples: int, seconds: float) -> None:
        """Count one step, unless it is the first of all."""
        if self._has_begun:
            self.samples += samples
            self.seconds += seconds
            self.latencies.append(seconds)
        self._has_begun = True

    @property
    def rate(self) -> float | None:
        """Samples a second; None where no step counts."""
        return self.samples / self.seconds if self.seconds else None

    def values(self) -> dict[str, float | None]:
        """Return the published keys of an epoch; latencies only where a step counts."""
        latencies = latency_values(self.latencies) if self.latencies else {}
        return {"samples/s": self.rate, "throughput": self.rate, **latencies}


def measure(
    feed: MeasuredFeed, step: Step, steps: int | None, warmup_steps: int, log: RunLog, title: str
) -> dict[str, Any]:
    """Measure ``steps`` steps, feed included, going through the data as often as that takes.

    Args:
        feed: this rank's rows.
        step: called with what the feed gives; returns when done.
        steps: those that are measured; None for one pass over the data, warm-up included.
        warmup_steps: those before, which are not measured.
        log: shows progress, and takes an entry for each step.
        title: of the progress line.

    Returns:
        The published keys: throughput (samples of all ranks a second), latencies in milliseconds,
        time (seconds of all steps, the warm-up's too).
    """
    latencies: list[float] = []
    samples = 0
    if steps is None:
        steps = feed.plan(0).steps
        warmup_steps = min(warmup_steps, steps - 1)
    else:
        steps += warmup_steps
    with log.progress(title, steps) as line, closing(_endless(feed)) as inputs:
        begin = before = time.perf_counter()
        for done, (place, given) in enumerate(inputs, start=1):
            count, values = step(given)
            now = time.perf_counter()
            rate = {"samples/s": count / max(1e-9, now - before)}
            log.write("step", place, epoch=place[0] + 1, step=done, **values, **rate)
            if done > warmup_steps:
                latencies.append(now - before)
                samples += count
            before = now
            line.update(
                done, f"{count / max(1e-9, latencies[-1]):,.0f} samples/s" if latencies else ""
            )
            if done == steps:
                break
    throughput = {"throughput": samples / sum(latencies), "time": before - begin}
    return {**throughput, **latency_values(latencies)}


def latency_values(latencies: list[float]) -> dict[str, float]:
    """Return mean and high percentiles under their published names, in milliseconds.

    >>> latency_values([1.0, 3.0])["latency_mean"]
    2000.0
    """
    shown = 1000 * np.array(latencies)
    percentiles = {f"latency_p{p}": float(np.percentile(shown, p)) for p in (90, 95, 99)}
    return {"latency_mean": float(np.mean(shown)), **percentiles}


def _endless(feed: MeasuredFeed) -> Generator[tuple[tuple[int, int], Any], None, None]:
    """Give what steps are given, with epoch and step."""
    epoch = 0
    while True:
        feed.start_at(epoch)
        with closing(feed.inputs()) as inputs:
            for index, given in enumerate(inputs):
                yield (epoch, index), given
        epoch += 1


GIB = 2**30


def peak_memory() -> dict[str, float]:
    """Return the peaks of this process so far, in GiB, under the names they have in a log.

    ``peak_gpu_memory_gib`` is what TensorFlow's tensors took of the GPU at once; without a GPU
    there is none.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    used = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks = {"peak_memory_gib": used / GIB}
    for gpu in tf.config.list_logical_devices("GPU")[:1]:
        place = gpu.name.removeprefix("/device:")
        peak = tf.config.experimental.get_memory_info(place)["peak"]
        peaks["peak_gpu_memory_gib"] = peak / GIB
    return peaks
