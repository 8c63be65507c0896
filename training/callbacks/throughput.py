"""How fast steps are: within a run, and measured by themselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from ..evaluation.throughput import Measurement, latency_values
from ..run_log import RunLog
from .callback import Callback


class Throughput(Callback):
    """Times steps, the wait for what they are made of included, and gives the published keys.

    The logs of a step then have ``samples/s``; those of an epoch ``samples/s``, ``throughput``,
    ``latency_mean``, ``latency_p90`` and so on, and ``seconds``. The first step of a process, in
    which TensorFlow makes the graph, counts in ``seconds`` alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        """Time spent training by this process, evaluation and checkpoints left out."""
        self.samples = 0
        """Samples trained on by this process and the other ranks."""
        self._samples: list[int] = []  # of the epoch's steps
        self._latencies: list[float] = []
        self._counted = [0.0, 0.0]
        self._begun = self._of_epoch = 0.0

    @property
    def rate(self) -> float | None:
        """Samples a second over all epochs of this process; None where no step counts."""
        samples, seconds = self._counted
        return samples / seconds if seconds else None

    @property
    def of_epoch(self) -> dict[str, float | None]:
        """The published keys of the last epoch; latencies only where a step counts."""
        if not self._latencies:
            return {"samples/s": None, "throughput": None}
        rate = sum(self._samples) / sum(self._latencies)
        return {"samples/s": rate, "throughput": rate, **latency_values(self._latencies)}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the epoch's times."""
        self._samples, self._latencies = [], []
        self._of_epoch = self.seconds

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start the clock."""
        self._begun = time.perf_counter()

    def on_evaluation_end(self, metrics: Any) -> None:
        """Start it anew: a resume may score before its first step."""
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stop it, when the steps are done."""
        samples = np.rint(self.executed.samples.numpy()).astype(int).tolist()
        seconds = time.perf_counter() - self._begun
        counted = samples if self.samples else samples[1:]
        self._samples += counted
        self._latencies += [seconds / len(samples)] * len(counted)
        self.seconds += seconds
        self.samples += sum(samples)
        if logs is not None:
            logs["samples/s"] = sum(samples) / max(1e-9, seconds)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Give the epoch's values."""
        self._counted[0] += sum(self._samples)
        self._counted[1] += sum(self._latencies)
        if logs is not None:
            logs["seconds"] = self.seconds - self._of_epoch
            logs |= {name: v for name, v in self.of_epoch.items() if v is not None}


class Benchmark(Callback):
    """Measures the throughput of steps, those of the warm-up not counted, as published.

    ``steps`` has the warm-up's too; ``steps_of_pass`` is how many a pass over the data has.
    """

    def __init__(
        self, log: RunLog, steps: int, warmup_steps: int, steps_of_pass: int, losses: Sequence[str]
    ) -> None:
        super().__init__()
        self._log, self._steps, self._names = log, steps, losses
        self._measured = (log, warmup_steps, steps_of_pass)
        self._open = ExitStack()
        self.losses: dict[str, float] = {}
        """Of the last step."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin."""
        self._line = self._open.enter_context(self._log.progress("training", self._steps))
        self._measurement = Measurement(*self._measured)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps that were just done."""
        samples = self.executed.samples.numpy().tolist()
        losses = self.executed.losses.numpy().tolist()
        named = [dict(zip(self._names, values, strict=True)) for values in losses]
        self.losses = named[-1]
        step = self.progress.step
        self._line.update(step, self._measurement.add(step, samples, named))

    def results(self) -> dict[str, Any]:
        """Return the published keys."""
        return self._measurement.results()

    def close(self) -> None:
        """See :class:`Callback`."""
        self._open.close()
