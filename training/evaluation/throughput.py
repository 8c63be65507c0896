"""Throughput and latency of a fixed number of steps, the first of them not counted."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..run_log import RunLog


class Measurement:
    """Throughput and latency of steps under the published keys, the first of them not counted."""

    def __init__(self, log: RunLog, warmup_steps: int, steps_of_pass: int) -> None:
        self._log, self._warmup, self._steps_of_pass = log, warmup_steps, steps_of_pass
        self.latencies: list[float] = []
        self._samples = 0
        self._begin = self._last = time.perf_counter()

    def add(self, done: int, samples: Sequence[float], losses: Sequence[dict[str, float]]) -> str:
        """Count the steps that were just done, up to number ``done``; return how fast they were.

        Each has its samples, of the global batch, and its losses, which are logged beside.
        """
        now = time.perf_counter()
        seconds, self._last = (now - self._last) / len(samples), now
        first = done - len(samples) + 1
        for step, (count, values) in enumerate(zip(samples, losses, strict=True), start=first):
            position = divmod(step - 1, self._steps_of_pass)
            rate = {"samples/s": count / max(1e-9, seconds)}
            self._log.write("step", position, epoch=position[0] + 1, step=step, **values, **rate)
            if step > self._warmup:
                self.latencies.append(seconds)
                self._samples += round(count)
        return f"{samples[-1] / max(1e-9, seconds):,.0f} samples/s" if self.latencies else ""

    def results(self) -> dict[str, Any]:
        """Return throughput, latencies, and the seconds of all steps, the warm-up's too."""
        throughput = self._samples / max(1e-9, sum(self.latencies))
        seconds = self._last - self._begin
        return {"throughput": throughput, "time": seconds, **latency_values(self.latencies)}


def latency_values(latencies: list[float]) -> dict[str, float]:
    """Return mean and high percentiles under their published names, in milliseconds.

    >>> latency_values([1.0, 3.0])["latency_mean"]
    2000.0
    """
    shown = 1000 * np.array(latencies)
    percentiles = {f"latency_p{p}": float(np.percentile(shown, p)) for p in (90, 95, 99)}
    return {"latency_mean": float(np.mean(shown)), **percentiles}


GIB = 2**30


def peak_memory() -> dict[str, float]:
    """Return the peaks of this process so far, in GiB, under the names they have in a log.

    ``peak_gpu_memory_gib`` is what TensorFlow's tensors took of the GPU at once; without a GPU
    there is none.
    """
    used = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks = {"peak_memory_gib": used / GIB}
    for gpu in tf.config.list_logical_devices("GPU")[:1]:
        device = gpu.name.removeprefix("/device:")
        peak = tf.config.experimental.get_memory_info(device)["peak"]
        peaks["peak_gpu_memory_gib"] = peak / GIB
    return peaks
