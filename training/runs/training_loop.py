"""The loop: epochs of steps, evaluation, checkpoints, and stopping when asked to."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ...checkpoints.checkpoint_files import write_alone
from ...checkpoints.checkpoint_store import CheckpointStore
from ...dataloader.loader import Loader
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import StepsLine
from ...foundation.ranks import Ranks
from ...models.families.family import Family
from ...ranks.interruption import Interrupted, StopRequest
from ...ranks.watchdog import Watchdog
from ...steps.dropout_seeds import DropoutSeeds
from ...steps.train_step import StepResult, TrainStep
from ..checkpoints.joint_writing import save_together
from ..checkpoints.run_state import RunState
from ..evaluation.metrics import AUCCounts, Evaluation
from ..evaluation.prediction import Predictor, evaluate, published_metrics
from ..evaluation.sample_places import SamplePlaces
from ..evaluation.throughput import StepTimes
from ..reports.run_log import RunLog
from .replay import TrainFeed
from .run_config import RunConfig


@dataclass(frozen=True)
class Evaluated:
    """What the run's model is worth after some steps."""

    steps: int
    test: Evaluation
    metrics: dict[str, Any]
    """Of all rows that were held out, under their published names."""

    def auc(self, mapping: str | None) -> float | None:
        """Return the AUC of a mapping's rows; None without a mapping."""
        auc: float | None = None if mapping is None else self.metrics.get(f"{mapping}_auc")
        return auc


@dataclass
class TrainingLoop:
    """Trains from the state's position to the configured number of epochs."""

    config: RunConfig
    family: Family
    ranks: Ranks
    state: RunState
    """Weights, optimizer and position; changed as training goes on."""
    step: TrainStep
    train_feed: TrainFeed
    held_out: Mapping[str, Loader]
    """What the run is evaluated on, by mapping: test, and validation where there is any."""
    select_by: str | None
    """The mapping whose AUC finds the best checkpoint; None where none is chosen."""
    predict: Predictor
    user: str | None
    """The column by which GAUC groups."""
    log: RunLog
    watchdog: Watchdog
    stop: StopRequest
    dropout_seeds: DropoutSeeds
    places: SamplePlaces | None = None
    """Finds the samples of test in the dataset, where their scores are saved."""
    loss_of_test: Callable[[], float] | None = None
    """Computes the loss over the test data, for a log that tells it."""
    seconds: float = 0.0
    """Time spent training by this process, evaluation and checkpoints left out."""
    samples: int = 0
    """Samples trained on by this process and the other ranks."""
    times: StepTimes = field(default_factory=StepTimes)
    """The steps of the epoch that this process ran."""
    counted_seconds: float = 0.0
    """Time of the steps that count for the throughput, over all epochs."""
    counted_samples: int = 0
    """Samples of those steps."""
    evaluated: Evaluated | None = None
    """The last evaluation."""

    def run(self) -> Evaluation:
        """Train all epochs that are left; return the last evaluation.

        Where none is left, the weights as they are are evaluated.
        """
        while self.state.position.epoch < self.config.epochs and self._steps_left:
            self._epoch()
        if self.evaluated is None:
            self.log.say(describe(self._evaluate().metrics))
        assert self.evaluated is not None
        return self.evaluated.test

    @property
    def _steps_left(self) -> float:
        """Steps until ``max_steps`` ends the training; none where nothing gets better."""
        patience = self.config.early_stopping
        if patience is not None and self.state.position.best.no_better >= patience:
            return 0
        if self.config.max_steps is None:
            return math.inf
        return max(0, self.config.max_steps - self.state.position.steps)

    @property
    def throughput(self) -> float | None:
        """Samples a second over all epochs of this process; None where no step counts."""
        return self.counted_samples / self.counted_seconds if self.counted_seconds else None

    def _epoch(self) -> None:
        position = self.state.position
        plan = self.train_feed.plan(0)
        passes = max(1, self.config.repeat_count)
        steps = plan.steps * passes
        title = f"epoch {position.epoch + 1}/{self.config.epochs}"
        begin = self.seconds
        self.times.begin_epoch()
        with self.log.progress(title, steps, position.step) as line:
            while position.step < steps and self._steps_left:
                number, first = divmod(position.step, plan.steps)
                self.train_feed.start_at(position.epoch * passes + number, first)
                self._pass(line, self._places_to_evaluate(steps))
        seconds = self.seconds - begin
        self.counted_seconds += self.times.seconds
        self.counted_samples += self.times.samples
        evaluation = self._evaluate()
        if position.step < steps:
            self._end_within_epoch(title, evaluation)
            return
        metrics = self._epoch_values(steps, evaluation)
        position.end_epoch(metrics)
        values = {**metrics, **self.times.values()}
        place = (position.epoch - 1,)
        self.log.write(
            "epoch", place, epoch=position.epoch, step=position.steps, seconds=seconds, **values
        )
        self.log.say(f"{title}  {describe(values)}")
        self._tell_of_early_stop()
        self.save(evaluation.auc(self.select_by))

    def _end_within_epoch(self, title: str, evaluation: Evaluated) -> None:
        """Save where something ended the training; a run that may go further does from here."""
        if self._tell_of_early_stop():
            title = f"{title}, ended early"
        else:
            title = f"{title}, ended by max_steps"
            self._write_evaluation(evaluation.metrics)
        self.log.say(f"{title}  {describe(evaluation.metrics)}")
        self.save(evaluation.auc(self.select_by))

    def _tell_of_early_stop(self) -> bool:
        best = self.state.position.best
        patience = self.config.early_stopping
        if patience is None or best.no_better < patience:
            return False
        self.log.say(
            f"{best.no_better} evaluations in a row were no better than that after step "
            f"{best.steps}: early_stopping ends the training."
        )
        return True

    def _places_to_evaluate(self, steps: int) -> set[int]:
        """Say after which steps of an epoch the test data is scored, its last left out."""
        times = self.config.evals_per_epoch
        return {round(steps * time / times) for time in range(1, times)} - {0, steps}

    def _pause(self, evaluated: set[int]) -> bool:
        """Save, or score the test data, if it is time; tell whether it was."""
        every = self.config.checkpoint_every
        saves = bool(every) and self.state.position.steps % int(every or 1) == 0
        if saves:
            self.save(None)
        scores = self.state.position.step in evaluated and bool(self._steps_left)
        if scores:
            self._evaluate_within_epoch()
        return saves or scores

    def _evaluate_within_epoch(self) -> None:
        metrics = self._evaluate().metrics
        self.log.say(f"step {self.state.position.steps}  {describe(metrics)}")
        self._write_evaluation(metrics)

    def _write_evaluation(self, values: Mapping[str, Any]) -> None:
        position = self.state.position
        place = (position.epoch, position.step - 1)
        self.log.write("evaluation", place, epoch=position.epoch + 1, step=position.steps, **values)

    def _pass(self, line: StepsLine, evaluated: set[int]) -> None:
        """Train on what is left of one pass over the data.

        Args:
            line: What a person sees of it.
            evaluated: After which steps of the epoch the test data is scored.
        """
        before = time.perf_counter()
        with contextlib.closing(self.train_feed.inputs()) as inputs:
            for given in inputs:
                result = self._train(given)
                samples = round(float(result.samples))
                now = time.perf_counter()
                seconds, before = now - before, now
                self.seconds += seconds
                self.samples += samples
                self.times.add(samples, seconds)
                self._tell(result, samples / seconds, line)
                if bool(result.stopped):
                    self._leave()
                if self._pause(evaluated):
                    before = time.perf_counter()
                if not self._steps_left:
                    return

    def _train(self, given: Any) -> StepResult:
        position = self.state.position
        self.dropout_seeds.start_step(position.steps)
        self.watchdog.alive()
        result = self.step.on_given(given, self.train_feed.make, bool(self.stop))
        losses = self._losses(result)
        sums = position.loss_sums
        position.loss_sums = {name: sums.get(name, 0.0) + loss for name, loss in losses.items()}
        position.step += 1
        position.steps += 1
        minimised = losses[self.family.losses[0]]
        if bool(result.finite) and not math.isfinite(minimised):
            raise MerlinSimError(
                f"the loss is {minimised} after step {position.steps}: a smaller `lr` than "
                f"{self.config.lr} may help."
            )
        counted = result.weights.numpy() != 0
        scores = tf.sigmoid(result.logits).numpy()[counted]
        position.auc.update(result.labels.numpy()[counted], np.nan_to_num(scores))
        return result

    def _losses(self, result: StepResult) -> dict[str, float]:
        return dict(zip(self.family.losses, result.losses.numpy().tolist(), strict=True))

    def _tell(self, result: StepResult, rate: float, line: StepsLine) -> None:
        position = self.state.position
        losses = self._losses(result)
        entry: dict[str, Any] = {**losses, "samples/s": rate}
        if self.state.loss_scale.active:
            entry["loss_scale"] = float(self.state.loss_scale.scale.numpy())
            entry["skipped"] = not bool(result.finite)
        place = (position.epoch, position.step - 1)
        self.log.write("step", place, epoch=position.epoch + 1, step=position.steps, **entry)
        line.update(position.step, f"{describe_losses(losses)}  {rate:,.0f} samples/s")

    def _evaluate(self) -> Evaluated:
        """Score what is held out, if that was not done since the last step."""
        position = self.state.position
        if self.evaluated is not None and self.evaluated.steps == position.steps:
            return self.evaluated
        found = {mapping: self._evaluate_on(mapping) for mapping in self.held_out}
        metrics: dict[str, Any] = {}
        for mapping, evaluation in found.items():
            metrics |= published_metrics(evaluation, self.family.metrics, mapping)
        position.best.take(position.steps, metrics)
        self.evaluated = Evaluated(position.steps, found["test"], metrics)
        return self.evaluated

    def _evaluate_on(self, mapping: str) -> Evaluation:
        feed = self.held_out[mapping]
        feed.start_at(0)
        evaluation = evaluate(
            self.predict,
            feed,
            self.ranks,
            self.log,
            self.user,
            stopped=lambda: bool(self.stop),
            alive=self.watchdog.alive,
            title=mapping,
            places=self.places if mapping == "test" else None,
        )
        if evaluation is None:
            self._leave()
        assert evaluation is not None
        return evaluation

    def _epoch_values(self, steps: int, evaluation: Evaluated) -> dict[str, Any]:
        position = self.state.position
        losses = {name: total / steps for name, total in position.loss_sums.items()}
        published = {}
        if self.loss_of_test is not None:
            published = {
                "train_loss": losses[self.family.losses[0]],
                "test_loss": self.loss_of_test(),
            }
        return {
            **losses,
            "train_auc": position.auc.over_ranks(self.ranks).result(),
            **evaluation.metrics,
            **published,
        }

    def save(self, auc_of_held_out: float | None) -> None:
        """Write a checkpoint; all ranks must come here, the first writes."""
        if self.config.save_checkpoint_path is None:
            return
        auc: AUCCounts = self.state.position.auc.over_ranks(self.ranks)
        store = CheckpointStore(self.config.save_checkpoint_path, self.config.keep_checkpoints)
        with self.watchdog.patience() as goes_on:
            if self.state.parts:
                save_together(store, self.state, auc, auc_of_held_out, self.ranks, goes_on)
            elif self.ranks.is_first:
                facts, arrays = self.state.to_checkpoint(auc)
                write = functools.partial(write_alone, report=goes_on)
                store.save(self.state.position.steps, facts, arrays, auc_of_held_out, write)

    def _leave(self) -> None:
        """Save and end the run, on all ranks alike."""
        where = self.config.save_checkpoint_path
        position = self.state.position
        if position.epoch >= self.config.epochs:
            raise Interrupted("stopped on request in the evaluation after the last epoch.")
        self.save(None)
        kept = (
            f"saved in {where}; --load_checkpoint_path {where} goes on"
            if where
            else "nothing was saved, there is no --save_checkpoint_path"
        )
        raise Interrupted(
            f"stopped on request in epoch {position.epoch + 1} after {position.steps} steps: "
            f"{kept}."
        )


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
