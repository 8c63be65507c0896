"""Whether a challenger is not worse than the current model: measures, segments, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...dataloader.open_loader import open_loader, user_column
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter
from ...foundation.ranks import Ranks
from ...parallel.steps.sample_batch import SampleBatch
from ...schemas.channels import LABEL, POSITIVE_HISTORY, TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import domain_of
from ...training.evaluation.scored_rows import ScoredRows
from ...training.reports.difference import difference
from ...training.reports.user_bootstrap import OfUsers, UserBootstrap
from .gate_rules import AUC, CALIBRATION, LOG_LOSS, MORE_IS_BETTER, TITLES, GateRules
from .judged import Array, Judged

ROWS_PER_BATCH = 4096
ALL = "all rows"
NEW_USERS = "new users"
NEW_ITEMS = "new items"
LONG_HISTORIES = "long histories"


@dataclass(frozen=True, eq=False)
class ScoredTwice:
    """Rows in one order: the scores of two models for each."""

    challenger: ScoredRows
    current: ScoredRows
    segments: dict[str, Array]
    """Name -> [rows], true where a row is of it."""
    has_users: bool
    """Whether the dataset tells users apart; where it does not, each row stands for itself."""
    long_from: int | None
    """Interactions from which a history is long; None of rows without one."""


def score_twice(
    challenger: Judged,
    current: Judged,
    dataset: DatasetDirectory,
    mapping: str,
    long_from: int | None,
    reporter: Reporter,
) -> ScoredTwice:
    """Score all rows of a mapping with both models.

    Users and items are new where ``current`` does not know them. Histories are long from
    ``long_from`` interactions; None for half of the longest that the dataset holds.
    """
    for judged in (challenger, current):
        judged.check(dataset)
    row_columns = _RowColumns.of(dataset, long_from)
    read = (column.name for model in (challenger, current) for column in model.columns.all)
    columns_read = [*read, *row_columns.names]
    feed = open_loader(dataset, mapping, list(dict.fromkeys(columns_read)), ROWS_PER_BATCH, Ranks())
    found: dict[str, list[Array]] = {}
    with (
        reporter.phase(f"scoring {mapping} twice", len(feed)) as report,
        closing(feed.inputs()) as inputs,
    ):
        for step, given in enumerate(inputs):
            batch = SampleBatch(*feed.whole(given))
            columns = {name: values.numpy() for name, values in batch.columns.items()}
            labels = batch.labels.numpy().reshape(-1) > 0.5
            of_rows = {
                "labels": labels,
                "challenger": challenger.score(columns),
                "current": current.score(columns),
                **row_columns.of_rows(columns, current, dataset),
            }
            if row_columns.user is not None:
                of_rows["users"] = feed.users_of(columns[row_columns.user], step, given)
            for name, values in of_rows.items():
                found.setdefault(name, []).append(np.asarray(values))
            report(1, len(labels))
    joined = {name: np.concatenate(parts) for name, parts in found.items()}
    labels = joined["labels"]
    if labels.all() or not labels.any():
        raise MerlinSimError(
            f"{dataset.path}: {mapping} should have clicks and rows without. "
            f"Received: {int(labels.sum()):,} clicks of {len(labels):,} rows"
        )
    users = joined.get("users", np.arange(len(labels))).astype(np.int64)
    by_challenger, by_current = (
        ScoredRows(users, labels, joined[name].astype(np.float32))
        for name in ("challenger", "current")
    )
    segments = {n: joined[n] for n in (NEW_USERS, NEW_ITEMS, LONG_HISTORIES) if n in joined}
    return ScoredTwice(
        by_challenger, by_current, segments, row_columns.user is not None, row_columns.long_from
    )


@dataclass(frozen=True)
class _RowColumns:
    """The columns that say whose a row is and of which segments; None for what there is not."""

    label: str
    user: str | None
    item: str | None
    history: str | None
    long_from: int | None

    @classmethod
    def of(cls, dataset: DatasetDirectory, long_from: int | None) -> _RowColumns:
        channels = dataset.channels
        item = next(iter(channels.get(TARGET_ITEM_FEATURES, ())), None)
        history = next(iter(channels.get(POSITIVE_HISTORY, ())), None)
        if history is None:
            long_from = None
        elif long_from is None:
            long_from = max(1, int(dataset.schema[history].value_count.max) // 2)
        user = user_column(dataset.schema)
        return cls(channels[LABEL][0], user, item, history, long_from)

    @property
    def names(self) -> list[str]:
        names = (self.user, self.item, self.history, self.label)
        return [name for name in names if name is not None]

    def of_rows(
        self, columns: Mapping[str, Array], current: Judged, dataset: DatasetDirectory
    ) -> dict[str, Array]:
        """Return for each segment which of some rows are of it."""
        found = {}
        if self.user is not None:
            found[NEW_USERS] = _unknown(columns[self.user], self.user, current, dataset)
        if self.item is not None:
            found[NEW_ITEMS] = _unknown(columns[self.item], self.item, current, dataset)
        if self.history is not None:
            found[LONG_HISTORIES] = (columns[self.history] > 0).sum(axis=1) >= self.long_from
        return found


def _unknown(values: Array, name: str, current: Judged, dataset: DatasetDirectory) -> Array:
    """Return which ids the current model has no vector for, or did not have when it was trained."""
    largest = next((c.largest_id for c in current.columns.all if c.name == name), None)
    if largest is None and current.ids is not None:
        domain = domain_of(dataset.schema[name])
        known = None if domain is None else current.ids.domains.get(domain[0])
        largest = None if known is None else known.largest
    if largest is None:
        return np.zeros(len(values), bool)
    return np.asarray((values <= 0) | (values > largest))


NOT_WORSE, WORSE, NOT_KNOWN = "not worse", "worse", "not known"
TOO_FEW = "too few"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One measure on one segment."""

    segment: str
    measure: str
    rows: int
    users: int
    challenger: float | None = None
    """None where the measure has no value: an AUC of clicks alone."""
    current: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    """Of the difference, 95% over users."""
    margin: float
    verdict: str


@dataclass(frozen=True)
class Gate:
    """Verdict of a gate, and the measures that it follows from."""

    judgements: tuple[Judgement, ...]
    rules: GateRules

    @property
    def reasons(self) -> list[str]:
        """Say what keeps the challenger out; nothing where it passes."""
        return [_reason(found, self.rules) for found in self.judgements if self._keeps_out(found)]

    @property
    def passed(self) -> bool:
        """Whether the challenger may replace the current model."""
        return not self.reasons

    def _keeps_out(self, found: Judgement) -> bool:
        if found.verdict in (NOT_WORSE, TOO_FEW):
            return False
        return found.verdict == WORSE or found.segment == ALL or self.rules.strict_segments

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "passed": self.passed,
            "reasons": self.reasons,
            "rules": {**asdict(self.rules), "margins": self.rules.margins},
            "judgements": [asdict(found) for found in self.judgements],
        }


def judge(scored: ScoredTwice, rules: GateRules, reporter: Reporter) -> Gate:
    """Compare the two models, on the same sets of users drawn with replacement."""
    bootstrap = UserBootstrap(scored.challenger, rules.draws, rules.seed)
    segments: dict[str, Array | None] = {ALL: None, **scored.segments}
    prepared = {
        (segment, measure, side): function
        for segment, of in segments.items()
        for side, rows in (("challenger", scored.challenger), ("current", scored.current))
        for measure, function in _measures(bootstrap, rows, of)
    }
    rows = len(scored.challenger.labels)
    with reporter.phase("drawing test users", rules.draws) as report:
        drawn = bootstrap.draw(prepared, lambda: report(1, rows))
    judgements = []
    for segment, of in segments.items():
        users = scored.challenger.users if of is None else scored.challenger.users[of]
        of_segment = {
            "segment": segment, "rows": len(users), "users": len(np.unique(users))
        }  # fmt: skip
        for measure in MORE_IS_BETTER:
            keys = [(segment, measure, side) for side in ("challenger", "current")]
            values = [prepared[key](bootstrap.once) for key in keys]
            judgements.append(_judge(of_segment, measure, values, [drawn[k] for k in keys], rules))
    return Gate(tuple(judgements), rules)


def _measures(
    bootstrap: UserBootstrap, rows: ScoredRows, of: Array | None
) -> Iterator[tuple[str, OfUsers]]:
    yield AUC, bootstrap.auc(rows, of)
    yield LOG_LOSS, bootstrap.log_loss(rows, of)
    yield CALIBRATION, bootstrap.calibration_error(rows, of)


def _judge(
    of_segment: Mapping[str, Any],
    measure: str,
    values: list[float],
    drawn: list[Array],
    rules: GateRules,
) -> Judgement:
    margin = rules.margins[measure]
    if not np.isfinite(values).all():
        return Judgement(measure=measure, margin=margin, verdict=TOO_FEW, **of_segment)
    challenger, current = values
    apart = difference([challenger], [current], drawn[0][None], drawn[1][None])
    verdict = _verdict(apart.over_users, margin, MORE_IS_BETTER[measure])
    if of_segment["users"] < rules.least_users:
        verdict = NOT_KNOWN if of_segment["segment"] == ALL else TOO_FEW
    return Judgement(
        measure=measure, challenger=challenger, current=current, difference=apart.mean,
        interval=apart.over_users, margin=margin, verdict=verdict, **of_segment,
    )  # fmt: skip


def _verdict(interval: tuple[float, float] | None, margin: float, more_is_better: bool) -> str:
    if interval is None:
        return NOT_KNOWN
    low, high = interval if more_is_better else (-interval[1], -interval[0])
    if low >= -margin:
        return NOT_WORSE
    return WORSE if high < -margin else NOT_KNOWN


def _reason(found: Judgement, rules: GateRules) -> str:
    title = TITLES[found.measure]
    if found.users < rules.least_users:
        return (
            f"{title} of {found.segment}: too few users to tell, {found.users:,} "
            f"(`least_users` is {rules.least_users:,})"
        )
    if found.interval is None or found.difference is None:
        return f"{title} of {found.segment}: whether it is worse is not known"
    how = "is worse by more than" if found.verdict == WORSE else "may be worse by more than"
    low, high = found.interval
    return (
        f"{title} of {found.segment} {how} {found.margin:g}: {found.difference:+.4f}, "
        f"95% {low:+.4f} to {high:+.4f}"
    )
