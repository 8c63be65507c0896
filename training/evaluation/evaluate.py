"""One pass over held-out data: every sample is scored once, and the metrics count it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from ...dataloader.loader import Loader
from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from ...models.compiled_metrics import states_over_ranks, variables_of
from ...parallel.ranks.collectives import (
    any_rank,
    broadcast_object,
    on_first_rank,
    send_rows,
    sum_counts,
)
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ..run_log import RunLog
from .metrics import AUC, GAUC, CalibrationError, LogLoss
from .prediction import Predictor
from .scored_rows import NONE, Array, SampleLocations, ScoredRows, exact_auc, refuse_not_a_number


@dataclass(frozen=True, eq=False)
class LocationFinder:
    """Finds where a batch's samples are in the dataset, of a feed in the stored order."""

    feed: Loader
    item: str | None
    """The column of the target item."""

    @classmethod
    def of(cls, feed: Loader, dataset: DatasetDirectory) -> LocationFinder:
        """Find out what the item's column is called."""
        return cls(feed, next(iter(dataset.channels.get(TARGET_ITEM_FEATURES, ())), None))

    def of_batch(
        self, step: int, given: Any, samples: int, columns: Mapping[str, Array]
    ) -> SampleLocations:
        """Find the samples of this rank's batch of a step."""
        items = np.full(samples, NONE)
        if self.item is not None:
            items = columns[self.item].astype(np.int64)
        rows, positions = self.feed.locations(step, given)
        return SampleLocations(
            rows, np.full(samples, NONE) if positions is None else positions, items
        )


class KeptRows:
    """The rows of an evaluation, 13 bytes of each, or 37 with where it is in the dataset."""

    def __init__(self) -> None:
        nothing = (np.bool_, np.float32, *[np.int64] * 4)
        self._batches: list[tuple[Array, ...]] = [tuple(np.empty(0, kind) for kind in nothing)]

    def add(
        self, labels: Array, scores: Array, users: Array | None, locations: SampleLocations | None
    ) -> None:
        """Keep the rows of a batch."""
        nothing = np.empty(0, np.int64)
        ids = np.zeros(len(labels), np.int64) if users is None else users.astype(np.int64)
        at = (nothing, nothing, nothing) if locations is None else locations
        self._batches.append((labels > 0.5, scores.astype(np.float32), ids, *at))

    def by_user(self, ranks: Ranks) -> ScoredRows:
        """Let the ranks share out the users, and return those of this one, user by user."""
        rows = [np.concatenate(column) for column in zip(*self._batches, strict=True)][:3]
        # Whatever pattern the ids of users have.
        mixed = rows[2].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        receivers = (mixed % np.uint64(ranks.size)).astype(np.int64)
        labels, scores, users = (send_rows(column, receivers, ranks) for column in rows)
        order = np.argsort(users, kind="stable")
        return ScoredRows(users[order], labels[order], scores[order])

    def on_first_rank(self, ranks: Ranks) -> ScoredRows | None:
        """Bring the rows of all ranks to the first one, in one order for any number of ranks."""
        rows = [np.concatenate(column) for column in zip(*self._batches, strict=True)]
        first = np.zeros(len(rows[0]), np.int64)
        labels, scores, users, *at = (send_rows(column, first, ranks) for column in rows)
        if not ranks.is_first:
            return None
        order = np.lexsort((*at, labels, scores, users))
        return ScoredRows(
            users[order],
            labels[order],
            scores[order],
            SampleLocations(*(column[order] for column in at)),
        )


AGREE_EVERY = 16
"""Batches between two agreements on whether to stop."""
SAMPLES_AT_ONCE = 1 << 18
"""Kept samples that GAUC takes in one go."""


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of a model after one pass over the test data."""

    rows: int
    auc: float | None
    """By 8,000 thresholds, as published."""
    log_loss: float
    gauc: float | None
    """AUC within users, weighted by their rows; None without users who have both labels."""
    calibration_error: float
    """Mean distance of predicted and observed click rate over bins, weighted by rows."""
    roc: list[list[float]]
    """[false positive rates, true positive rates], thinned for drawing."""
    calibration: list[list[float]]
    """[mean prediction, observed click rate, rows] of each bin that has rows."""
    exact_auc: float | None = None
    """By every score: the share of pairs of a click and another row that are in order. None where
    scores were not kept."""
    scored: ScoredRows | None = None
    """The rows of all ranks, where they were to be kept: on the first rank alone."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold: all but the rows."""
        values = asdict(replace(self, scored=None))
        values.pop("scored")
        return values

    def published(self, metrics: Sequence[str], mapping: str = "test") -> dict[str, float | None]:
        """Return metrics under their published names: ``auc`` of test data is ``test_auc``."""
        known = [name for name in metrics if name != "exact_auc" or self.exact_auc is not None]
        return {f"{mapping}_{name}": getattr(self, name) for name in known}


def evaluate(
    predict: Predictor,
    feed: Loader,
    ranks: Ranks,
    log: RunLog,
    user: str | None = None,
    stopped: Callable[[], bool] = lambda: False,
    alive: Callable[[], None] = lambda: None,
    reports_steps: bool = False,
    title: str = "test",
    locations: LocationFinder | None = None,
    extra: Sequence[tf.keras.metrics.Metric] = (),
) -> tuple[EvaluationResult, dict[str, float]] | None:
    """Score every sample once; return the metrics over all ranks, and the further ones by name.

    None is returned where a rank was asked to stop. Nothing of a sample is kept, unless
    ``locations`` asks for it or GAUC needs it: where the samples of a user do not come one after
    another on one rank. ``feed`` has this rank's rows in the stored order, ``contiguous`` where
    there are several ranks.
    """
    steps = feed.plan(0).steps
    begin, samples = time.perf_counter(), 0
    before = begin
    item = locations.item if locations is not None else None
    users = [m.user for m in extra if isinstance(m, GAUC) and m.user is not None]
    keep = [name for name in dict.fromkeys((user, item, *users)) if name is not None]
    together = user is None or _are_together(feed, user, ranks, log)
    for name in dict.fromkeys(users):
        if name != user and not _are_together(feed, name, ranks, log):
            raise MerlinSimError(
                f"GAUC({name!r}): expected the rows of each {name} one after another, or GAUC of "
                f"{user!r}, by which scores are kept. Found: rows that are apart."
            )
    counted = HeldOutMetrics(user, together, extra)
    kept = KeptRows() if locations is not None or not together else None
    wrong = alone = 0
    with log.progress(title, steps) as line, closing(feed.inputs()) as inputs:
        for step, given in enumerate(inputs):
            alive()
            if step % AGREE_EVERY == 0 and any_rank(stopped(), ranks):
                return None
            scores, labels, columns = predict.of_given(given, feed, keep)
            if user is not None:
                alone += int((columns[user] == 0).sum())
                columns[user] = feed.users_of(columns[user], step, given)
            wrong += int(np.isnan(scores).sum())
            counted.update(labels, scores, columns)
            if kept is not None:
                at = None
                if locations is not None:
                    at = locations.of_batch(step, given, len(scores), columns)
                kept.add(labels, scores, columns[user] if user else None, at)
            samples += len(scores) * ranks.size
            now = time.perf_counter()
            if reports_steps:
                rate = {"samples/s": len(scores) * ranks.size / max(1e-9, now - before)}
                log.write("step", (0, step), epoch=1, step=step + 1, **rate)
            before = now
            line.update(step + 1, f"{samples / (now - begin):,.0f} samples/s")
    alone = 0 if feed.tells_users_apart else int(sum_counts(np.array([alone]), ranks)[0])
    if alone:
        log.say_once(
            f"{alone:,} rows of {title} are of users without an id: each counts as another user's. "
            "A dataset with one row per user (`--layout users`) tells these users apart."
        )
    if kept is not None and not together:
        counted.take_users_one_by_one(kept.by_user(ranks))
    scored = kept.on_first_rank(ranks) if kept is not None and locations is not None else None
    return counted.result(wrong, ranks, scored, locations is not None)


def _are_together(feed: Loader, user: str, ranks: Ranks, log: RunLog) -> bool:
    """Whether the samples of each user come one after another, on one rank."""

    def look() -> bool:
        found = feed.keeps_together(user)
        if not found:
            log.say_once(
                f"{feed.files[0]} and what follows: the rows of one {user} do not stand one after "
                "another. The AUC within users keeps the scores of all rows, 13 bytes each."
            )
        return found

    return bool(broadcast_object(on_first_rank(look, ranks), ranks))


class HeldOutMetrics:
    """The metrics of a pass, and further ones.

    GAUC groups by the column ``user``; ``users_are_together`` says whether the samples of each user
    come one after another.
    """

    def __init__(
        self,
        user: str | None,
        users_are_together: bool,
        extra: Sequence[tf.keras.metrics.Metric],
    ) -> None:
        self.auc, self.log_loss, self.calibration = AUC(), LogLoss(), CalibrationError()
        self.gauc = None if user is None else GAUC(user)
        self.user, self.users_are_together, self.extra = user, users_are_together, extra

    def update(self, labels: Any, scores: Any, columns: dict[str, Any]) -> None:
        """Count the samples of a batch."""
        for metric in (self.auc, self.log_loss, self.calibration):
            metric.update_state(labels, scores)
        if self.user is not None and self.gauc is not None and self.users_are_together:
            self.gauc.take_users(columns[self.user])
            self.gauc.update_state(labels, scores)
        for metric in self.extra:
            if isinstance(metric, GAUC):
                name = metric.user or self.user
                waits = name == self.user and not self.users_are_together
                metric.take_users(None if name is None or waits else columns[name])
            metric.update_state(labels[:, None], scores[:, None])

    def take_users_one_by_one(self, rows: ScoredRows) -> None:
        """Count kept samples, which are in the order of their users."""
        of_users = [m for m in (self.gauc, *self.extra) if isinstance(m, GAUC)]
        waiting = [metric for metric in of_users if metric.user in (None, self.user)]
        for first in range(0, len(rows.users), SAMPLES_AT_ONCE):
            taken = slice(first, first + SAMPLES_AT_ONCE)
            for metric in waiting:
                metric.take_users(rows.users[taken])
                metric.update_state(rows.labels[taken], rows.scores[taken])

    def result(
        self, wrong: int, ranks: Ranks, scored: ScoredRows | None, has_scores: bool
    ) -> tuple[EvaluationResult, dict[str, float]]:
        """Add up what all ranks have counted: of all rows, and the further metrics."""
        metrics = [self.auc, self.log_loss, self.calibration, *self.extra]
        metrics += [] if self.gauc is None else [self.gauc]
        for variable, total in zip(variables_of(metrics), states_over_ranks(metrics), strict=True):
            variable.assign(total)
        rows = self.auc.samples
        wrong = int(sum_counts(np.array([wrong]), ranks)[0])
        refuse_not_a_number(wrong, rows, "the model's scores")
        sorted_auc = scored and exact_auc(scored.labels, scored.scores)
        evaluation = EvaluationResult(
            rows=rows,
            auc=self.auc.exact_result(),
            log_loss=self.log_loss.exact_result() or 0.0,
            gauc=None if self.gauc is None else self.gauc.exact_result(),
            calibration_error=self.calibration.exact_result(),
            roc=_thinned(self.auc),
            calibration=self.calibration.bins().tolist(),
            exact_auc=broadcast_object(sorted_auc, ranks) if has_scores else None,
            scored=scored,
        )
        return evaluation, {metric.name: float(metric.result()) for metric in self.extra}


def _thinned(auc: AUC) -> list[list[float]]:
    """Keep about 200 points of the ROC curve, evenly spaced along both axes."""
    curve = auc.roc()
    if curve is None:
        return [[], []]
    false_positive, true_positive = curve
    percent = np.floor((false_positive + true_positive) * 100)
    kept = np.flatnonzero(np.concatenate([[True], percent[1:] != percent[:-1]]))
    kept = np.union1d(kept, [len(percent) - 1])
    return [false_positive[kept].tolist(), true_positive[kept].tolist()]
