"""The rows of a dataset, scored by two models, with the segments that they lie in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...dataloader.open_loader import open_loader, user_column
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ...foundation.ranks import Ranks
from ...schemas.channels import LABEL, POSITIVE_HISTORY, TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import domain_of
from ...steps.sample_batch import SampleBatch
from ...training.evaluation.scored_rows import ScoredRows
from .judged import Judged
from .model_columns import Array

ROWS_PER_BATCH = 4096
ALL = "all rows"
NEW_USERS = "new users"
NEW_ITEMS = "new items"
LONG_HISTORIES = "long histories"


@dataclass(frozen=True, eq=False)
class ScoredTwice:
    """Rows in one order: what two models said of each."""

    candidate: ScoredRows
    current: ScoredRows
    segments: dict[str, Array]
    """Name -> [rows], true where a row is of it."""
    told_by_user: bool
    """Whether the dataset tells users apart; where it does not, each row stands for itself."""
    long_from: int | None
    """Interactions from which a history is long; None of rows without one."""


def score_twice(
    candidate: Judged,
    current: Judged,
    dataset: DatasetDirectory,
    mapping: str,
    long_from: int | None,
    narrator: Narrator,
) -> ScoredTwice:
    """Score all rows of a mapping with both models.

    Args:
        candidate: The one that may be promoted.
        current: The one that is served; users and items are new where it does not know them.
        dataset: Of the ids of both, or of more.
        mapping: Which rows.
        long_from: Interactions from which a history is long; None for half of the longest that the
            dataset holds.
        narrator: Shows progress.

    Raises:
        MerlinSimError: Where one of them cannot score it.
    """
    for judged in (candidate, current):
        judged.check(dataset)
    told = _Told.of(dataset, long_from)
    wanted = [*candidate.columns.names, *current.columns.names, *told.names]
    feed = open_loader(dataset, mapping, list(dict.fromkeys(wanted)), ROWS_PER_BATCH, Ranks())
    found: dict[str, list[Array]] = {}
    with narrator.phase(f"scoring {mapping} twice", len(feed)) as report:
        for given in feed:
            batch = SampleBatch(*given)
            columns = {name: values.numpy() for name, values in batch.columns.items()}
            labels = batch.labels.numpy().reshape(-1) > 0.5
            of_rows = {
                "labels": labels,
                "candidate": candidate.score(columns),
                "current": current.score(columns),
                **told.of_rows(columns, current, dataset),
            }
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
    by_candidate, by_current = (
        ScoredRows(users, labels, joined[name].astype(np.float32))
        for name in ("candidate", "current")
    )
    segments = {n: joined[n] for n in (NEW_USERS, NEW_ITEMS, LONG_HISTORIES) if n in joined}
    return ScoredTwice(by_candidate, by_current, segments, told.user is not None, told.long_from)


@dataclass(frozen=True)
class _Told:
    """The columns that tell whose a row is and of which segments; None for what there is not."""

    label: str
    user: str | None
    item: str | None
    history: str | None
    long_from: int | None

    @classmethod
    def of(cls, dataset: DatasetDirectory, long_from: int | None) -> _Told:
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
        """Return the users of rows, and for each segment which of them are of it."""
        found = {}
        if self.user is not None:
            found["users"] = columns[self.user]
            found[NEW_USERS] = _unknown(columns[self.user], self.user, current, dataset)
        if self.item is not None:
            found[NEW_ITEMS] = _unknown(columns[self.item], self.item, current, dataset)
        if self.history is not None:
            found[LONG_HISTORIES] = (columns[self.history] > 0).sum(axis=1) >= self.long_from
        return found


def _unknown(values: Array, name: str, current: Judged, dataset: DatasetDirectory) -> Array:
    """Tell which ids the current model has no vector for, or did not have when it was trained."""
    largest = current.columns.largest.get(name)
    if largest is None and current.ids is not None:
        domain = domain_of(dataset.schema[name])
        known = None if domain is None else current.ids.domains.get(domain[0])
        largest = None if known is None else known.largest
    if largest is None:
        return np.zeros(len(values), bool)
    return np.asarray((values <= 0) | (values > largest))
