"""Looks through a dataset directory for what would spoil training or its evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dataloader.arrow_columns import Array, Column
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter, Silence
from ...schemas.channels import POSITIVE_HISTORY, TARGET_ITEM_FEATURES, USER_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.layout_names import CATEGORIES, TEST, TRAIN
from .checked_rows import CheckedRows, FileRows, SampleHashes, in_background
from .feature_counts import (
    EXACT,
    FILE_BINS,
    Bounds,
    Finding,
    IdCounts,
    ListCounts,
    NumberCounts,
    OrderCounts,
    UserCounts,
    key_order,
    share_finding,
    step_scores,
)

AnyCounts = IdCounts | NumberCounts | ListCounts


@dataclass
class MappingCounts:
    """Counts of the rows of one mapping."""

    users: UserCounts
    rows: int = 0
    labels: Any = field(default_factory=lambda: np.zeros(2, np.int64))
    hashes: SampleHashes = field(default_factory=SampleHashes)
    file_order: OrderCounts = field(default_factory=lambda: OrderCounts(FILE_BINS))


@dataclass
class DatasetCheck:
    """All checks of one dataset; ``run`` reads every row once."""

    dataset: DatasetDirectory
    bounds: Bounds = field(default_factory=Bounds)
    reporter: Reporter = field(default_factory=Silence)
    most_rows: int | None = None
    """Look at so many rows of each mapping, and leave out the checks that need all of them."""

    def __post_init__(self) -> None:
        self.sampled = False
        """Whether there were more rows than were looked at."""
        self._mappings: dict[str, MappingCounts] = {}
        self._features: dict[str, AnyCounts] = {}
        self._user = next(iter(self.dataset.channels.get(USER_FEATURES, [])), "")
        self._target = next(iter(self.dataset.channels.get(TARGET_ITEM_FEATURES, [])), "")
        self._history = next(iter(self.dataset.channels.get(POSITIVE_HISTORY, [])), "")
        self._length = f"length of {self._history}"
        self._steps = [(*order, OrderCounts(EXACT + 64)) for order in self._orders_of_items()]

    @property
    def rows(self) -> dict[str, int]:
        """By mapping, how many rows were looked at."""
        return {mapping: counts.rows for mapping, counts in self._mappings.items()}

    def _orders_of_items(self) -> Iterator[tuple[str, Any]]:
        """The orders in which the target may be just above the last item of the history."""
        size = self._size(self._target)
        if size is None or not self._history:
            return
        yield "id", np.arange(size)
        domain = self.dataset.schema[self._target].int_domain
        if domain is not None and domain.name:
            of_keys = key_order(self.dataset.path / CATEGORIES / f"{domain.name}.parquet", size)
            if of_keys is not None:
                yield "key", of_keys

    def run(self) -> list[Finding]:
        """Look at train, then at what tests, and say what was found."""
        mappings = list(self.dataset.spec.source_spec)
        if TRAIN not in mappings:
            raise MerlinSimError(
                f"{self.dataset.path}: expected a mapping {TRAIN!r}, found {', '.join(mappings)}."
            )
        for mapping in [TRAIN, *(name for name in mappings if name != TRAIN)]:
            self._read(mapping)
        return list(self._findings())

    def _read(self, mapping: str) -> None:
        source: Any
        if self.dataset.users is None:
            source = FileRows(self.dataset, mapping)
        else:
            from .made_rows import MadeRows  # TensorFlow, which stored rows do without

            source = MadeRows(self.dataset, mapping)
        parts: dict[Any, int] = source.parts
        rows = sum(parts.values())
        if self.most_rows is not None and rows > self.most_rows:
            self.sampled = True
            count = max(1, int(len(parts) * self.most_rows / rows))  # from begin to end
            chosen = np.linspace(0, len(parts) - 1, count).astype(int)
            parts = dict(list(parts.items())[number] for number in chosen)
        self._mappings[mapping] = MappingCounts(UserCounts(self._size(self._user)))
        with self.reporter.phase(f"checking {mapping}", max(1, sum(parts.values()))) as report:
            for some in in_background(source.read, parts):
                self._add(mapping, some)
                report(len(some.labels), len(some.labels))

    def _add(self, mapping: str, rows: CheckedRows) -> None:
        counts = self._mappings[mapping]
        counts.rows += len(rows.labels)
        counts.labels += np.bincount(rows.labels, minlength=2)
        if not self.sampled:
            counts.hashes.add(rows.hashes)
        if self._user and rows.lengths is not None:
            counts.users.add(rows.columns[self._user], rows.labels, rows.lengths)
        if rows.file_order is not None:
            counts.file_order.add((rows.file_order * FILE_BINS).astype(np.int64), rows.labels)
        if rows.last is not None and mapping == TEST:
            some = rows.last > 0
            for _, rank_of, steps in self._steps:
                scores = step_scores(rank_of, rows.columns[self._target][some], rows.last[some])
                steps.add(scores, rows.labels[some])
        columns: dict[str, Any] = dict(rows.columns)
        columns |= {n: some for n, some in rows.lists.items() if self._size(n) is not None}
        if rows.lengths is not None:
            columns[self._length] = rows.lengths
        for name, values in columns.items():
            if name not in self._features:
                self._features[name] = self._counts(name, values)
            if mapping == TRAIN:
                self._features[name].train(values, rows.labels)
            elif mapping == TEST:
                self._features[name].test(values, rows.labels)

    def _counts(self, name: str, values: Array | Column) -> AnyCounts:
        size = self._size(name)
        if isinstance(values, Column):
            assert size is not None
            return ListCounts(name, size)
        if size is not None:
            return IdCounts(name, size)
        return NumberCounts(name, values.shape[1] if values.ndim > 1 else None)

    def _size(self, name: str) -> int | None:
        """How many ids a feature has, the padding counted; None for a number."""
        feature = self.dataset.spec.feature_spec.get(name)
        if feature is None or feature.cardinality is None:
            return None
        return int(feature.cardinality) + 1

    def _findings(self) -> Iterator[Finding]:
        for mapping, counts in self._mappings.items():
            yield _labels_finding(mapping, *counts.labels.tolist())
        if not self.sampled:
            yield from self._row_findings()
        for order, _, steps in self._steps:
            yield from self._order_finding(f"{order} above the last", self._target, steps.auc())
        for mapping, counts in self._mappings.items():
            auc = counts.file_order.auc()
            yield from self._order_finding("rank in the file", mapping, auc, either_way=True)
        for feature in self._features.values():
            yield from self._feature_findings(feature)
        for mapping, counts in self._mappings.items():
            if not self.sampled:
                yield from counts.users.findings(mapping, self.bounds.without_history)

    def _row_findings(self) -> Iterator[Finding]:
        for mapping, counts in self._mappings.items():
            found = counts.hashes.repeated()
            yield share_finding("repeated rows", mapping, *found, self.bounds.repeated)
        for mapping, counts in self._mappings.items():
            if mapping != TRAIN:
                found = counts.hashes.found_in(self._mappings[TRAIN].hashes)
                bound = self.bounds.test_in_train
                yield share_finding("rows that train too", mapping, *found, bound)

    def _order_finding(
        self, check: str, where: str, auc: float | None, either_way: bool = False
    ) -> Iterator[Finding]:
        if auc is not None:
            bound, strength = self.bounds.order_auc, max(auc, 1 - auc) if either_way else auc
            yield Finding(check, where, auc, bound, strength > bound, f"AUC {auc:.4f}")

    def _feature_findings(self, feature: AnyCounts) -> Iterator[Finding]:
        if self.rows[TRAIN] and feature.is_constant and feature.name != self._length:
            says = "one value in all rows of train"
            yield Finding("constant column", feature.name, 1, None, True, says)
        tested = self.rows.get(TEST, 0)
        if not tested:
            return
        found, bound = feature.auc(), self.bounds.feature_auc
        if found is not None:
            name, auc = found
            yield Finding("AUC of it alone", name, auc, bound, auc > bound, f"{auc:.4f}")
        if not isinstance(feature, IdCounts) or self.sampled:
            return
        check, unseen = "ids that never train", feature.unseen_rows
        if feature.name == self._user and unseen == tested:
            says = f"all {tested:,} rows of {TEST}: it is split by users"
            yield Finding(check, feature.name, 1, None, False, says)
        else:
            bound, what = self.bounds.unseen, f"rows of {TEST}"
            yield share_finding(check, feature.name, unseen, tested, bound, what)


def _labels_finding(mapping: str, zeros: int, ones: int) -> Finding:
    rows = zeros + ones
    share = ones / rows if rows else None
    says = f"{share:.2%} ({ones:,} of {rows:,} rows)" if rows else "no rows"
    return Finding("rows of label 1", mapping, share, None, not (zeros and ones), says)
