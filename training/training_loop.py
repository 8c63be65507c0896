"""The loop: epochs of steps, evaluation, checkpoints, and stopping when asked to."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ..schemas.exceptions import MerlinSimError
from .checkpoints import CheckpointStore
from .config import RunConfig
from .distributed import Ranks
from .evaluation import Predictor, evaluate
from .interruption import Interrupted, StopRequest
from .loader import Loader
from .metrics import AUCCounts, Evaluation
from .noise import Noise
from .run_log import ProgressLine, RunLog
from .run_state import RunState
from .throughput import latency_values
from .train_step import StepResult, TrainStep, with_a_row
from .watchdog import Watchdog

LOSSES = ("total_loss", "classification_loss", "dien_aux_loss")


@dataclass
class TrainingLoop:
    """Trains from the state's position to the configured number of epochs."""

    config: RunConfig
    ranks: Ranks
    state: RunState
    """Weights, optimizer and position; changed as training goes on."""
    step: TrainStep
    train_feed: Loader
    test_feed: Loader
    predict: Predictor
    user: str | None
    """The column by which GAUC groups."""
    log: RunLog
    watchdog: Watchdog
    stop: StopRequest
    noise: Noise
    seconds: float = 0.0
    """Time spent training, evaluation and checkpoints left out."""
    samples: int = 0
    """Rows trained on, over all ranks."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of each step of the epoch, waiting for its batch included."""

    def run(self) -> Evaluation | None:
        """Train all epochs that are left; return the last evaluation."""
        evaluation = None
        while self.state.position.epoch < self.config.epochs:
            evaluation = self._epoch()
        return evaluation

    def _epoch(self) -> Evaluation:
        position = self.state.position
        plan = self.train_feed.plan(0)
        passes = max(1, self.config.repeat_count)
        steps = plan.steps * passes
        title = f"epoch {position.epoch + 1}/{self.config.epochs}"
        begin, samples = self.seconds, self.samples
        self.latencies.clear()
        with self.log.progress(title, steps, position.step) as line:
            while position.step < steps:
                number, first = divmod(position.step, plan.steps)
                self.train_feed.start_at(position.epoch * passes + number, first)
                self._pass(plan.batch_rows, first, line)
        seconds = self.seconds - begin
        rate = (self.samples - samples) / seconds if seconds else 0.0
        evaluation = self._evaluate()
        values = self._epoch_values(steps, evaluation)
        values |= {"samples/s": rate, "throughput": rate}
        if self.latencies:
            values |= latency_values(self.latencies)
        position.end_epoch(values)
        self.log.write(
            "epoch", epoch=position.epoch, step=position.steps, seconds=seconds, **values
        )
        self.log.say(f"{title}  {describe(values)}")
        self.save(evaluation.auc)
        return evaluation

    def _pass(self, batch_rows: Any, first: int, line: ProgressLine) -> None:
        """Train on what is left of one pass over the data."""
        before = time.perf_counter()
        for index, (columns, labels) in enumerate(self.train_feed, start=first):
            rows = batch_rows(index)
            result = self._train(columns, labels, rows)
            now = time.perf_counter()
            seconds, before = now - before, now
            self.seconds += seconds
            self.latencies.append(seconds)
            self.samples += rows
            self._tell(result, rows / seconds, line)
            if bool(result.stopped):
                self._leave()
            every = self.config.checkpoint_every
            if every and self.state.position.steps % every == 0:
                self.save(None)
                before = time.perf_counter()

    def _train(self, columns: dict[str, tf.Tensor], labels: tf.Tensor, rows: int) -> StepResult:
        position = self.state.position
        count = int(labels.shape[0])
        columns, filled = with_a_row(columns, labels)
        self.noise.start_step(position.steps)
        self.watchdog.alive()
        result = self.step(columns, filled, count * self.ranks.size / rows, bool(self.stop))
        losses = result.losses.numpy().tolist()
        position.loss_sums = [a + b for a, b in zip(position.loss_sums, losses, strict=True)]
        position.step += 1
        position.steps += 1
        if bool(result.finite) and not math.isfinite(losses[0]):
            raise MerlinSimError(
                f"the loss is {losses[0]} after step {position.steps}: a smaller `lr` than "
                f"{self.config.lr} may help."
            )
        scores = tf.sigmoid(result.logits).numpy()[:count]
        position.auc.update(labels.numpy(), np.nan_to_num(scores))
        return result

    def _tell(self, result: StepResult, rate: float, line: ProgressLine) -> None:
        position = self.state.position
        values = dict(zip(LOSSES, result.losses.numpy().tolist(), strict=True))
        entry: dict[str, Any] = {**values, "samples/s": rate}
        if self.state.loss_scale.active:
            entry["loss_scale"] = float(self.state.loss_scale.scale.numpy())
            entry["skipped"] = not bool(result.finite)
        self.log.write("step", epoch=position.epoch + 1, step=position.steps, **entry)
        total, classification, auxiliary = (values[name] for name in LOSSES)
        parts = f" ({classification:.4f} + {auxiliary:.4f})" if auxiliary else ""
        line.update(position.step, f"loss {total:.4f}{parts}  {rate:,.0f} samples/s")

    def _evaluate(self) -> Evaluation:
        self.test_feed.start_at(0)
        evaluation = evaluate(
            self.predict,
            self.test_feed,
            self.ranks,
            self.log,
            self.user,
            stopped=lambda: bool(self.stop),
            alive=self.watchdog.alive,
        )
        if evaluation is None:
            self._leave()
        assert evaluation is not None
        return evaluation

    def _epoch_values(self, steps: int, evaluation: Evaluation) -> dict[str, Any]:
        position = self.state.position
        means = [total / steps for total in position.loss_sums]
        return {
            **dict(zip(LOSSES, means, strict=True)),
            "train_auc": position.auc.over_ranks(self.ranks).result(),
            "test_auc": evaluation.auc,
            "test_log_loss": evaluation.log_loss,
            "test_gauc": evaluation.gauc,
            "test_calibration_error": evaluation.calibration_error,
        }

    def save(self, test_auc: float | None) -> None:
        """Write a checkpoint; all ranks must come here, the first writes."""
        if self.config.save_checkpoint_path is None:
            return
        auc: AUCCounts = self.state.position.auc.over_ranks(self.ranks)
        if not self.ranks.is_first:
            return
        store = CheckpointStore(self.config.save_checkpoint_path, self.config.keep_checkpoints)
        with self.watchdog.patience():
            facts, arrays = self.state.to_checkpoint(auc)
            store.save(self.state.position.steps, facts, arrays, test_auc)

    def _leave(self) -> None:
        """Save and end the run, on all ranks alike."""
        self.train_feed.stop()
        self.save(None)
        where = self.config.save_checkpoint_path
        position = self.state.position
        kept = (
            f"saved in {where}; --load_checkpoint_path {where} goes on"
            if where
            else "nothing was saved, there is no --save_checkpoint_path"
        )
        raise Interrupted(
            f"stopped on request in epoch {position.epoch + 1} after {position.steps} steps: "
            f"{kept}."
        )


def describe(values: dict[str, Any]) -> str:
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
