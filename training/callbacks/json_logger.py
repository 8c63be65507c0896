"""The log of a run, written by ``fit``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...models.registry import family_of
from ...parallel.ranks import collectives
from ...schemas.layout_names import VALIDATION
from ..evaluation.metrics import GAUC, WholeNumbers, over_ranks
from ..run_log import RunLog
from .callback import Callback, notify

RATES = ("samples/s", "throughput")


@dataclass
class _EpochSums:
    """What is kept of the steps of an epoch."""

    losses: dict[str, float] = field(default_factory=dict)
    """Sums over the steps, by name."""
    steps: int = 0
    finished: dict[str, Any] | None = None
    """What was logged of the last complete epoch, without the times of the process."""


class JSONLogger(Callback):
    """Writes the log of a run: an entry for each step, evaluation and epoch.

    Args:
        log: Where it goes: an opened log, or a directory of results.
        append: Whether to go on with the log in that directory, as after a resume.
        losses: The names of the losses; None for those of the model's family.
        loss_of_test: Computes the loss over the test data, for a log that has it.
    """

    def __init__(
        self,
        log: RunLog | Path | str,
        *,
        append: bool = False,
        losses: Sequence[str] | None = None,
        loss_of_test: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(log, RunLog):
            log = RunLog(Path(log) if collectives.joined().is_first else None, append=append)
        self.log = log
        self._names = losses
        self._loss_of_test = loss_of_test
        self._epoch = _EpochSums()
        self._open = ExitStack()
        self._line: Any = None
        self._exact: dict[str, Any] | None = None

    @property
    def finished_epoch(self) -> dict[str, Any]:
        """What was logged of the last complete epoch."""
        return self._epoch.finished or {}

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the losses; the first is what is minimised."""
        return tuple(family_of(self.model).losses if self._names is None else self._names)

    def get_state(self) -> dict[str, Any]:
        """See :class:`Callback`."""
        return asdict(self._epoch)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._epoch = _EpochSums(**state)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the line of progress."""
        self._exact = None
        title, steps = self._title(epoch), self.progress.steps_of_epoch
        done = 0 if self.progress.is_epoch_complete else self.progress.step
        self._line = self._open.enter_context(self.log.progress(title, steps, done))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the entries of the steps that were just done."""
        progress, executed = self.progress, self.executed
        losses, scales = executed.losses.numpy().tolist(), executed.loss_scale.numpy().tolist()
        finite = executed.finite.numpy().tolist()
        rate = float((logs or {}).get("samples/s", math.nan))
        sums = self._epoch.losses
        shown: dict[str, float] = {}
        for index, values in enumerate(losses):
            shown = dict(zip(self.names, values, strict=True))
            self._epoch.steps += 1
            for name, loss in shown.items():
                sums[name] = sums.get(name, 0.0) + loss
            entry: dict[str, Any] = {**shown, "samples/s": rate}
            if self.model.loss_scale.active:
                entry |= {"loss_scale": scales[index], "skipped": not finite[index]}
            behind = len(losses) - 1 - index
            at = (progress.epoch, progress.step - 1 - behind)
            step = progress.steps - behind
            self.log.write("step", at, epoch=progress.epoch + 1, step=step, **entry)
        self._line.update(progress.step, f"{describe_losses(shown)}  {rate:,.0f} samples/s")
        if progress.is_epoch_complete or self.model.stop_training:
            self._open.close()

    def on_test_begin(self, logs: Any = None) -> None:
        """Look at the metrics of training before those of validation data replace them."""
        if self._exact is None:
            self._exact = self._exact_metrics()

    def on_evaluation_end(self, metrics: Mapping[str, Any]) -> None:
        """Write what was measured within an epoch."""
        self.log.say(f"step {self.progress.steps}  {describe(metrics)}")
        self._write_evaluation(metrics)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the epoch's entry; where it was ended before its end, that of an evaluation."""
        self._open.close()
        logs = {} if logs is None else logs
        notify(self, "on_epoch_evaluation", logs)
        progress, title = self.progress, self._title(epoch)
        measured = {n: v for n, v in logs.items() if n.startswith(("test_", f"{VALIDATION}_"))}
        if not progress.is_epoch_complete:
            how, why = progress.ended or ("ended by a callback", "")
            if why:
                self.log.say(why)
            else:
                self._write_evaluation(measured)
            self.log.say(f"{title}, {how}  {describe(measured)}")
            return
        losses = {n: total / self._epoch.steps for n, total in self._epoch.losses.items()}
        metrics = {**losses, **self._trained(logs), **measured}
        if self._loss_of_test is not None:
            metrics |= {"train_loss": losses[self.names[0]], "test_loss": self._loss_of_test()}
        self._epoch = _EpochSums(finished=metrics)
        times = {n: v for n, v in logs.items() if n in RATES or n.startswith("latency")}
        values = {**metrics, **dict.fromkeys(RATES), **times}
        seconds = logs.get("seconds")
        self.log.write(
            "epoch", (epoch,), epoch=epoch + 1, step=progress.steps, seconds=seconds, **values
        )
        self.log.say(f"{title}  {describe(values)}")
        if progress.ended:
            self.log.say(progress.ended[1])

    def close(self) -> None:
        """See :class:`Callback`."""
        self._open.close()

    def _trained(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the compiled metrics of training, over all ranks."""
        found = self._exact_metrics() if self._exact is None else self._exact
        self._exact = None
        for metric in self.model.metrics:
            name = f"train_{metric.name}"
            is_of_training = not isinstance(metric, GAUC) and not metric.name.endswith("loss")
            if name not in found and metric.name in logs and is_of_training:
                found[name] = float(logs[metric.name])
        return found

    def _exact_metrics(self) -> dict[str, Any]:
        metrics = [metric for metric in self.model.metrics if isinstance(metric, WholeNumbers)]
        return {
            f"train_{metric.name}": over_ranks(metric).exact_result()
            for metric in metrics
            if not isinstance(metric, GAUC)
        }

    def _write_evaluation(self, values: Mapping[str, Any]) -> None:
        progress = self.progress
        at = (progress.epoch, progress.step - 1)
        self.log.write("evaluation", at, epoch=progress.epoch + 1, step=progress.steps, **values)

    def _title(self, epoch: int) -> str:
        return f"epoch {epoch + 1}/{self.progress.epochs}"


def describe_losses(losses: Mapping[str, float]) -> str:
    """Put a step's losses in a few words: what is minimised, and its parts where there are several.

    >>> describe_losses({"total": 0.75, "click": 0.5, "auxiliary": 0.25})
    'loss 0.7500 (0.5000 + 0.2500)'
    >>> describe_losses({"total": 0.5, "click": 0.5, "auxiliary": 0.0})
    'loss 0.5000'
    """
    minimised, *others = losses.values()
    parts = [f"{loss:.4f}" for loss in others if loss]
    return f"loss {minimised:.4f}" + (f" ({' + '.join(parts)})" if len(parts) > 1 else "")


def describe(values: Mapping[str, Any]) -> str:
    """Put an epoch's metrics in one line.

    >>> describe({"total_loss": 0.5, "test_auc": None, "samples/s": 12345.6})
    'total_loss 0.5000  samples/s 12,346'
    """
    parts = []
    for name, value in values.items():
        if value is not None and not name.startswith(("latency", "throughput")):
            shown = f"{value:,.0f}" if name == "samples/s" else f"{value:.4f}"
            parts.append(f"{name} {shown}")
    return "  ".join(parts)
