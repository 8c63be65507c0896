"""Looks through a dataset directory for what would spoil training or its evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from ...schemas.channels import POSITIVE_HISTORY, TARGET_ITEM_FEATURES, USER_FEATURES
from ...schemas.dataset import DatasetDirectory
from ..behaviour.positions import TEST, TRAIN
from ..vocabularies.vocabulary import CATEGORIES
from .checked_rows import CheckedRows, StoredRows, in_background
from .feature_counts import FeatureCounts
from .finding import Bounds, Finding, share_finding
from .order_counts import RankCounts, StepCounts, key_ranks
from .sample_hashes import SampleHashes
from .user_counts import UserCounts


@dataclass
class DatasetCheck:
    """All checks of one dataset; ``run`` reads every row once."""

    dataset: DatasetDirectory
    bounds: Bounds = field(default_factory=Bounds)
    narrator: Narrator = field(default_factory=Silence)
    most_rows: int | None = None
    """Look at so many rows of each mapping, and leave out the checks that need all of them."""

    def __post_init__(self) -> None:
        """Begin with nothing counted."""
        self.rows: dict[str, int] = {}
        """By mapping, how many rows were looked at."""
        self.sampled = False
        """Whether there were more."""
        self._labels: dict[str, Any] = {}
        self._hashes: dict[str, SampleHashes] = {}
        self._users: dict[str, UserCounts] = {}
        self._features: dict[str, FeatureCounts] = {}
        self._steps = self._orders_of_items()
        self._ranks: dict[str, RankCounts] = {}

    def _orders_of_items(self) -> list[StepCounts]:
        """The orders in which the target may stand just above the last item of the history."""
        target, size = self._target, self._size(self._target)
        if target is None or size is None or POSITIVE_HISTORY not in self.dataset.channels:
            return []
        orders = [StepCounts("id", np.arange(size))]
        domain = self.dataset.schema[target].int_domain
        if domain is not None and domain.name:
            of_keys = key_ranks(self.dataset.path / CATEGORIES / f"{domain.name}.parquet", size)
            orders += [] if of_keys is None else [StepCounts("key", of_keys)]
        return orders

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
        source: Any = StoredRows(self.dataset, mapping)
        if self.dataset.users is not None:
            from .made_rows import MadeRows  # TensorFlow, which stored rows do without

            source = MadeRows(self.dataset, mapping)
        parts, sizes = source.parts, [source.rows_of(part) for part in source.parts]
        if self.most_rows is not None and sum(sizes) > self.most_rows:
            self.sampled = True
            parts, sizes = _some(parts, sizes, self.most_rows)
        self.rows[mapping] = 0
        self._labels[mapping] = np.zeros(2, np.int64)
        self._hashes[mapping] = SampleHashes()
        self._users[mapping] = UserCounts(self._size(self._user))
        with self.narrator.phase(f"checking {mapping}", max(1, sum(sizes))) as report:
            for rows in in_background(source.read, parts):
                self._add(mapping, rows)
                report(len(rows.labels), len(rows.labels))

    def _add(self, mapping: str, rows: CheckedRows) -> None:
        self.rows[mapping] += len(rows.labels)
        self._labels[mapping] += np.bincount(rows.labels, minlength=2)
        if not self.sampled:
            self._hashes[mapping].add(rows.hashes)
        if self._user is not None and rows.lengths is not None:
            self._users[mapping].add(rows.columns[self._user], rows.labels, rows.lengths)
        if rows.ranks is not None:
            self._ranks.setdefault(mapping, RankCounts()).add(rows.ranks, rows.labels)
        if rows.last is not None and mapping == TEST:
            for steps in self._steps:
                steps.add(rows.columns[self._target or ""], rows.last, rows.labels)
        columns = dict(rows.columns)
        if rows.lengths is not None:
            columns[self._length] = rows.lengths
        for name, values in columns.items():
            if name not in self._features:
                self._features[name] = FeatureCounts(name, self._size(name))
            if mapping == TRAIN:
                self._features[name].train(values, rows.labels)
            elif mapping == TEST:
                self._features[name].test(values, rows.labels)

    @property
    def _user(self) -> str | None:
        """The column that tells users apart."""
        users = self.dataset.channels.get(USER_FEATURES, [])
        return users[0] if users else None

    @property
    def _target(self) -> str | None:
        """The column of the target item."""
        targets = self.dataset.channels.get(TARGET_ITEM_FEATURES, [])
        return targets[0] if targets else None

    @property
    def _length(self) -> str:
        histories = self.dataset.channels.get(POSITIVE_HISTORY, [""])
        return f"length of {histories[0]}"

    def _size(self, name: str | None) -> int | None:
        """How many ids a feature has, the padding counted; None for a number."""
        feature = self.dataset.spec.feature_spec.get(name or "")
        if feature is None or feature.cardinality is None:
            return None
        return int(feature.cardinality) + 1

    def _findings(self) -> Iterator[Finding]:
        for mapping, labels in self._labels.items():
            yield _labels_finding(mapping, *labels.tolist())
        if not self.sampled:
            yield from self._row_findings()
        yield from self._order_findings()
        for feature in self._features.values():
            yield from self._feature_findings(feature)
        for mapping, users in self._users.items():
            if users.users and not self.sampled:
                yield from users.findings(mapping, self.bounds.without_history)

    def _row_findings(self) -> Iterator[Finding]:
        for mapping, hashes in self._hashes.items():
            yield share_finding("repeated rows", mapping, *hashes.repeated(), self.bounds.repeated)
        for mapping, hashes in self._hashes.items():
            if mapping != TRAIN:
                found = hashes.found_in(self._hashes[TRAIN])
                bound = self.bounds.test_in_train
                yield share_finding("rows that train too", mapping, *found, bound)

    def _order_findings(self) -> Iterator[Finding]:
        bound = self.bounds.order_auc
        found = [steps.finding(self._target or "", bound) for steps in self._steps]
        found += [ranks.finding(mapping, bound) for mapping, ranks in self._ranks.items()]
        yield from filter(None, found)

    def _feature_findings(self, feature: FeatureCounts) -> Iterator[Finding]:
        if self.rows[TRAIN] and feature.values == 1 and feature.name != self._length:
            says = "one value in all rows of train"
            yield Finding("constant column", feature.name, 1, None, True, says)
        tested = self.rows.get(TEST, 0)
        if not tested:
            return
        auc, bound = feature.auc(), self.bounds.feature_auc
        if auc is not None:
            yield Finding("AUC of it alone", feature.name, auc, bound, auc > bound, f"{auc:.4f}")
        if not feature.is_number and not self.sampled:
            yield self._unseen_finding(feature, tested)

    def _unseen_finding(self, feature: FeatureCounts, tested: int) -> Finding:
        check, unseen = "ids that never train", feature.unseen_rows
        if feature.name == self._user and unseen == tested:
            says = f"all {tested:,} rows of {TEST}: it is split by users"
            return Finding(check, feature.name, 1, None, False, says)
        bound, what = self.bounds.unseen, f"rows of {TEST}"
        return share_finding(check, feature.name, unseen, tested, bound, what)


def _labels_finding(mapping: str, zeros: int, ones: int) -> Finding:
    rows = zeros + ones
    share = ones / rows if rows else None
    says = f"{share:.2%} ({ones:,} of {rows:,} rows)" if rows else "no rows"
    return Finding("rows of label 1", mapping, share, None, not (zeros and ones), says)


def _some(parts: list[Any], sizes: list[int], most_rows: int) -> tuple[list[Any], list[int]]:
    """Choose parts from begin to end that hold about so many rows; at least one."""
    count = max(1, int(len(parts) * most_rows / sum(sizes)))
    chosen = np.linspace(0, len(parts) - 1, count).astype(int)
    return [parts[i] for i in chosen], [sizes[i] for i in chosen]
