"""Test and validation data scored within ``fit``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf

from ...dataloader.loader import Loader
from ...dataloader.open_loader import open_scored, user_column
from ...foundation.exceptions import MerlinSimError
from ...models.family import METRICS
from ...models.saving import average_untrained
from ...parallel.ranks import collectives
from ...schemas.dataset import DatasetDirectory
from ...schemas.layout_names import TEST, VALIDATION
from ..evaluation.best_so_far import HOW_TO_VALIDATE, BestSoFar
from ..evaluation.evaluate import EvaluationResult, LocationFinder, evaluate
from ..evaluation.prediction import Predictor
from ..run_log import RunLog
from .callback import Callback, notify
from .checkpoint import leave


@dataclass(frozen=True)
class Evaluated:
    """Metrics of the model after some steps."""

    steps: int
    test: EvaluationResult
    metrics: dict[str, Any]
    """Of all rows that were held out, under their published names."""


class Evaluation(Callback):
    """Scores the rows of test and validation by the published metrics, exact over ranks.

    The logs of an epoch then have ``test_auc``, ``validation_auc`` and so on, and for callbacks of
    Keras what is of validation data under ``val_`` too, with ``val_loss``. Where there are no such
    data, a callback that monitors ``val_...`` is refused: test data choose nothing.

    Args:
        held_out: An opened dataset directory, or loaders by mapping, ``test`` among them.
        batch_size: Samples a step over all ranks, of a directory.
        times_per_epoch: How often an epoch is evaluated, at its end too.
        patience: Evaluations in a row without a better AUC of the validation data after which
            training ends; None: it does not.
        metrics: The names of the published metrics.
        extra: Further Keras metrics, of labels and probabilities, under names of their own.
        user: The column by which GAUC groups.
        predict: The compiled forward pass; None for one of the model.
        locations: Finds the samples of test in the dataset, where their scores are to be kept.
        log: Shows progress.
        alive: Called with every batch.
    """

    def __init__(
        self,
        held_out: DatasetDirectory | Mapping[str, Loader],
        *,
        batch_size: int | None = None,
        times_per_epoch: int = 1,
        patience: int | None = None,
        metrics: Sequence[str] = METRICS,
        extra: Sequence[tf.keras.metrics.Metric] = (),
        user: str | None = None,
        predict: Predictor | None = None,
        locations: LocationFinder | None = None,
        log: RunLog | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        if isinstance(held_out, DatasetDirectory) and not batch_size:
            raise MerlinSimError("`batch_size` should be set when the data is a directory.")
        names = [metric.name for metric in extra]
        wrong = [name for name in names if name in metrics or names.count(name) > 1]
        if wrong:
            raise MerlinSimError(
                "The names of one's own metrics should differ, and be other than "
                f"{', '.join(metrics)}, as by `name=`. Received: {', '.join(wrong)}."
            )
        self._held_out = held_out
        self._batch_size = batch_size
        self._times = times_per_epoch
        self._patience = patience
        self._metrics = metrics
        self._extra = extra
        self._user = user
        self._predict = predict
        self._locations = locations
        self._log = log or RunLog(None)
        self._alive = alive
        self._forget()

    def _forget(self) -> None:
        self._scored_at: int | None = None  # or when the training began: steps done in all
        self.best = BestSoFar()
        self.last: Evaluated | None = None

    def set_model(self, model: Any) -> None:
        """Forget what was found of another model."""
        if self.model is not None and model is not self.model:
            self._forget()
            self._predict = None
            self.__dict__.pop("held_out", None)  # with that model's columns
        super().set_model(model)

    @functools.cached_property
    def held_out(self) -> Mapping[str, Loader]:
        """The loaders, by mapping."""
        if not isinstance(self._held_out, DatasetDirectory):
            return self._held_out
        dataset, model, size = self._held_out, self.model, self._batch_size
        assert size is not None
        self._user = self._user or user_column(dataset.schema)
        columns = [*model.served_columns, model.label]
        columns += [self._user] if self._user and self._user not in columns else []
        candidates = model.input_of(size).candidates(dataset)
        ranks = collectives.joined()
        return {
            mapping: open_scored(dataset, mapping, columns, size, ranks, candidates=candidates)
            for mapping in self.mappings
        }

    def get_state(self) -> dict[str, Any]:
        """See :class:`Callback`."""
        return {"best": asdict(self.best), "scored_at": self._scored_at}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self.best = BestSoFar(**state["best"])
        self._scored_at = state.get("scored_at")

    @property
    def is_over(self) -> bool:
        """Whether patience has ended."""
        return self._patience is not None and self.best.no_better >= self._patience

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuse callbacks that choose by validation data where there are none."""
        if VALIDATION in self.mappings or self.progress.validates:
            return
        for callback in self.progress.callbacks:
            monitored = str(getattr(callback, "monitor", ""))
            if monitored.startswith("val_") and getattr(callback, "save_best_only", True):
                raise MerlinSimError(
                    f"{type(callback).__name__} monitors {monitored}: expected validation data. "
                    f"Found: {', '.join(self.mappings)} alone. {HOW_TO_VALIDATE}"
                )

    @property
    def mappings(self) -> list[str]:
        """The mappings that are scored."""
        if not isinstance(self._held_out, DatasetDirectory):
            return list(self._held_out)
        return [name for name in (TEST, VALIDATION) if name in self._held_out.spec.source_spec]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note from where on steps are counted."""
        if self._scored_at is None:
            self._scored_at = self.progress.steps

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Score what a stop kept from being scored, before the first step of a resume."""
        self._score_within_epoch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Score within an epoch, where it is time."""
        if not self.model.stop_training:
            self._score_within_epoch()

    def _score_within_epoch(self) -> None:
        progress, times, scored_at = self.progress, self._times, self._scored_at
        assert scored_at is not None
        steps, before = progress.steps_of_epoch, progress.steps - progress.step
        points = {before + round(steps * time / times) for time in range(1, times)} - {before}
        if progress.is_epoch_complete:
            return
        if any(scored_at < point <= progress.steps for point in points):
            notify(self, "on_evaluation_end", self.evaluate())
            self._end_if_over()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Score at the end of an epoch."""
        self.on_epoch_evaluation({} if logs is None else logs)

    def on_epoch_evaluation(self, logs: dict[str, Any]) -> None:
        """Put what is measured at the end of an epoch into its logs."""
        metrics = self.evaluate()
        self._end_if_over()
        logs |= {name: value for name, value in metrics.items() if value is not None}
        for name, value in metrics.items():
            if value is not None and name.startswith(f"{VALIDATION}_"):
                logs[f"val_{name.removeprefix(f'{VALIDATION}_')}"] = value
        if VALIDATION in self.held_out and "val_log_loss" in logs:
            logs["val_loss"] = logs["val_log_loss"]

    def evaluate(self) -> dict[str, Any]:
        """Score what is held out, if that was not done since the last step; all ranks call this."""
        steps = self.progress.steps
        if self.last is None or self.last.steps != steps:
            average_untrained(self.model, collectives.joined())
            found = {mapping: self._evaluate_on(mapping) for mapping in self.held_out}
            metrics: dict[str, Any] = {}
            for mapping, (evaluation, extra) in found.items():
                metrics |= evaluation.published(self._metrics, mapping)
                metrics |= {f"{mapping}_{name}": value for name, value in extra.items()}
            self.best.take(steps, metrics)
            self.last = Evaluated(steps, found[TEST][0], metrics)
            self._scored_at = steps
        return self.last.metrics

    def _evaluate_on(self, mapping: str) -> tuple[EvaluationResult, dict[str, float]]:
        if self._predict is None:
            self._predict = Predictor(self.model)
        feed = self.held_out[mapping]
        feed.start_at(0)
        for metric in self._extra:
            metric.reset_state()
        found = evaluate(
            self._predict,
            feed,
            collectives.joined(),
            self._log,
            self._user,
            stopped=self.progress.stop_asked,
            alive=self._alive,
            title=mapping,
            locations=self._locations if mapping == TEST else None,
            extra=self._extra,
        )
        if found is None:
            leave(self.model)
        assert found is not None
        return found

    def _end_if_over(self) -> None:
        if self.is_over and not self.progress.ended:
            self.model.stop_training = True
            worse = self.best.no_better
            found = "1 evaluation was" if worse == 1 else f"{worse} evaluations in a row were"
            self.progress.ended = (
                "ended early",
                f"{found} no better than that after step {self.best.steps}: early_stopping ends "
                "the training.",
            )
