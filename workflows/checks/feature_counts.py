"""Rows counted by value and label: how well a feature, or an order, alone predicts the label."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...dataloader.arrow_columns import Column
from ...schemas.item_table import ID, KEY


@dataclass(frozen=True)
class Bounds:
    """From where on something is a problem; each but the AUC is a share, 0 to 1."""

    repeated: float = 0.05
    """Rows of a mapping that repeat another one of it."""
    test_in_train: float = 0.05
    """Rows of what tests that train, too."""
    feature_auc: float = 0.9
    """AUC of one feature alone."""
    order_auc: float = 0.7
    """AUC of an order that no behaviour made: of ids, of keys, of rows in a file."""
    unseen: float = 0.2
    """Rows of what tests whose id no row of train has."""
    without_history: float = 0.5
    """Users without history in any of their rows."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """What was looked for."""
    where: str
    """A mapping or a feature."""
    value: float | None
    """What was found; None where there is nothing to report."""
    bound: float | None
    """Beyond it, it is a problem; None where ``problem`` follows from something else."""
    problem: bool
    says: str
    """The same to be read."""


def share_finding(
    check: str, where: str, count: int, of: int, bound: float, what: str = "rows"
) -> Finding:
    """A share that should not be larger than a bound.

    >>> share_finding("repeated rows", "train", 3, 100, 0.01).says
    '3.00% (3 of 100 rows)'
    """
    share = count / of if of else 0.0
    says = f"{share:.2%} ({count:,} of {of:,} {what})"
    return Finding(check, where, share, bound, share > bound, says)


MOST_COUNTED = 1 << 22
"""Ids beyond share the counts of smaller ones, so that a feature's counts stay small."""
BUCKETS = 256
"""Of a number."""
MOST_NUMBERS = 1 << 17
"""Rows of a number that are kept to be counted."""
PRIOR_ROWS = 20.0
"""So many rows of the mean rate are added to those of each id."""
LEAST_ROWS = 100
"""Of either label; of fewer an order says nothing."""
EXACT = 64
"""Steps up to here are distinguished one by one, larger ones by their number of bits."""
FILE_BINS = 256
Array = npt.NDArray[Any]


@numba.njit(cache=True, nogil=True)
def _count(groups: Array, labels: Array, mask: int, counts: Array) -> None:
    for row in range(len(groups)):
        counts[groups[row] & mask, labels[row]] += 1


class IdCounts:
    """Counts a feature's rows by id and label, of what trains and of what tests.

    Its size is how many ids it has, the padding counted.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        counted = min(MOST_COUNTED, 1 << (size - 1).bit_length())
        self._mask = counted - 1
        self._train = np.zeros((counted, 2), np.int64)
        self._test = np.zeros((counted, 2), np.int64)
        self._trained = np.zeros(size, np.bool_)
        self.unseen_rows = 0
        """Rows of what tests whose id no training row has."""

    def train(self, ids: Array, labels: Array) -> None:
        """Count rows that train."""
        self._trained[ids] = True
        _count(ids, labels, self._mask, self._train)

    def test(self, ids: Array, labels: Array) -> None:
        """Count rows that test."""
        self.unseen_rows += int(np.count_nonzero(~self._trained[ids]))
        _count(ids, labels, self._mask, self._test)

    @property
    def is_constant(self) -> bool:
        """Whether all rows that train have one value."""
        return int(np.count_nonzero(self._trained)) == 1

    def auc(self) -> tuple[str, float] | None:
        """Its name, and the AUC of it alone; see :func:`auc_of_rates`."""
        auc = auc_of_rates(self._train, self._test)
        return None if auc is None else (self.name, auc)


class SomeRows:
    """Values of rows with their labels; of many rows those of a random share.

    First and last rows are in it alike: a file may be unlike the one before it.
    """

    def __init__(self, width: int | None = None, most: int = MOST_NUMBERS) -> None:
        """Keep at most so many; the width is that of vectors, None for numbers."""
        self.values: Array = np.empty(0 if width is None else (0, width), np.int8)
        self.labels: Array = np.empty(0, np.int8)
        self._most, self._share = most, 1.0
        self._random = np.random.default_rng(0)

    def add(self, values: Array, labels: Array) -> None:
        """Take note of rows."""
        chosen = self._random.random(len(values)) < self._share
        self.values = np.concatenate([self.values, values[chosen]])
        self.labels = np.concatenate([self.labels, labels[chosen]])
        while len(self.values) > self._most:
            self._share /= 2
            chosen = self._random.random(len(self.values)) < 0.5
            self.values, self.labels = self.values[chosen], self.labels[chosen]


class NumberCounts:
    """Numbers, or vectors, of what trains and of what tests.

    They are counted in buckets of about as many rows each, a vector's numbers one by one.
    """

    def __init__(self, name: str, width: int | None = None) -> None:
        """The width is that of vectors; None for numbers."""
        self.name = name
        self._width = width
        self._train, self._test = SomeRows(width), SomeRows(width)
        self._first: Array = np.empty(0)
        self.is_constant = True
        """Whether all rows that train have one value."""

    def train(self, values: Array, labels: Array) -> None:
        """Take note of rows that train."""
        if not len(self._first):
            self._first = values[:1]
        expected = np.broadcast_to(self._first, values.shape)
        self.is_constant &= np.array_equal(values, expected, equal_nan=True)
        self._train.add(values, labels)

    def test(self, values: Array, labels: Array) -> None:
        """Take note of rows that test."""
        self._test.add(values, labels)

    def auc(self) -> tuple[str, float] | None:
        """The number with the largest AUC of it alone, and that; see :func:`auc_of_rates`."""
        found: list[tuple[str, float]] = []
        some = (self._train, self._test)
        numbers = [rows.values.reshape(len(rows.values), self._width or 1).T for rows in some]
        for index, (train, test) in enumerate(zip(*numbers, strict=True)):
            name = self.name if self._width is None else f"{self.name}[{index}]"
            known = train[np.isfinite(train)]
            shares = np.linspace(0, 1, BUCKETS + 1)[1:-1]
            edges = np.unique(np.quantile(known, shares)) if len(known) else np.zeros(1)
            counts = _bucket_counts(edges, train, self._train.labels)
            auc = auc_of_rates(counts, _bucket_counts(edges, test, self._test.labels))
            found += [] if auc is None else [(name, auc)]
        return max(found, key=operator.itemgetter(1)) if found else None


def _bucket_counts(edges: Array, values: Array, labels: Array) -> Array:
    """Count rows by bucket, of which what is not a number has one of its own, and label."""
    counts = np.zeros((BUCKETS + 2, 2), np.int64)
    buckets = np.searchsorted(edges, values, side="right")
    buckets[np.isnan(values)] = BUCKETS + 1
    np.add.at(counts, (buckets, labels), 1)
    return counts


class ListCounts:
    """Counts the ids of lists that train by label, and scores the lists that test by that.

    Its size is how many ids it has, the padding counted, which is no id.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        counted = min(MOST_COUNTED, 1 << (size - 1).bit_length())
        self._mask = counted - 1
        self._train = np.zeros((counted, 2), np.int64)
        self._test = SomeRows()
        self.is_constant = False
        """Of lists it is not looked for."""

    def train(self, lists: Column, labels: Array) -> None:
        """Count the ids of rows that train."""
        ids, rows = _ids_of_rows(lists)
        _count(ids, labels[rows], self._mask, self._train)

    def test(self, lists: Column, labels: Array) -> None:
        """Score rows that test, behind all that train: the sum over a list's ids of log odds."""
        ids, rows = _ids_of_rows(lists)
        mean = _rates(self._train.sum(axis=0, keepdims=True), 0.5)
        odds = _log_odds(_rates(self._train[ids & self._mask], mean)) - _log_odds(mean)
        self._test.add(np.bincount(rows, odds, len(labels)), labels)

    def auc(self) -> tuple[str, float] | None:
        """Its name, and the AUC of the scores."""
        auc = auc_of_counts(self._test.values, np.eye(2)[self._test.labels])
        return None if auc is None else (self.name, auc)


def _ids_of_rows(lists: Column) -> tuple[Array, Array]:
    """The ids of lists, and the row of each; without padding."""
    some = lists.values != 0
    assert lists.offsets is not None
    rows = np.repeat(np.arange(lists.rows), np.diff(lists.offsets))
    return lists.values[some].astype(np.int64), rows[some]


def _rates(counts: Array, mean: Any) -> Any:
    """The rates of clicks by counts of label 0 and label 1, with so many rows of the mean rate."""
    return (counts[:, 1] + PRIOR_ROWS * mean) / (counts.sum(axis=1) + PRIOR_ROWS)


def _log_odds(rates: Any) -> Any:
    return np.log(rates) - np.log1p(-rates)


def auc_of_rates(train: Array, test: Array) -> float | None:
    """The AUC, on what tests, of the rate of clicks that each value has in training.

    Both are counts [values, 2]. None where what tests has one label alone.
    """
    rates = _rates(train, train[:, 1].sum() / max(1, train.sum()))
    found = np.flatnonzero(test.any(axis=1))
    return auc_of_counts(rates[found], test[found])


def auc_of_counts(scores: Array, counts: Array) -> float | None:
    """The AUC of groups of rows that share a score, by [groups, 2] counts of label 0 and label 1.

    None where all rows have one label.

    >>> auc_of_counts(np.array([0.9, 0.1, 0.1]), np.array([[0, 2], [1, 1], [1, 0]]))
    0.8333333333333334
    """
    _, group = np.unique(scores, return_inverse=True)
    zeros, ones = (np.bincount(group, counts[:, label]) for label in (0, 1))
    if not zeros.sum() or not ones.sum():
        return None
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + zeros / 2)).sum() / (zeros.sum() * ones.sum()))


class OrderCounts:
    """Counts rows by a score of an order that no behaviour made, and by label."""

    def __init__(self, scores: int) -> None:
        self._counts = np.zeros((scores, 2), np.int64)

    def add(self, scores: Array, labels: Array) -> None:
        """Count rows by their scores, 0 to the last one."""
        np.add.at(self._counts, (scores, labels), 1)

    def auc(self) -> float | None:
        """How well the scores predict the label; None where there are too few rows."""
        if self._counts.sum(axis=0).min() < LEAST_ROWS:
            return None
        return auc_of_counts(np.arange(len(self._counts), dtype=np.float64), self._counts)


def step_scores(rank_of: Array, targets: Array, last: Array) -> Array:
    """Score targets by how little they are above the last item of the history, in an order.

    The smaller the step up, the likelier the label 1: a rule that needs no training. No step up at
    all is the least likely.

    >>> step_scores(np.arange(9), np.array([5, 6, 8, 2]), np.array([4, 4, 4, 4])).tolist()
    [127, 126, 124, 0]
    """
    steps = rank_of[targets] - rank_of[last]
    bits = np.ceil(np.log2(np.maximum(steps, 1))).astype(np.int64)
    group = np.where(steps < EXACT, steps, EXACT + bits)
    return np.where(steps > 0, EXACT + 64 - group, 0)


def key_order(vocabulary: Path, size: int) -> Array | None:
    """By id, a key's number in the order of the keys; None without a file of keys."""
    if not vocabulary.is_file() or KEY not in pq.read_schema(vocabulary).names:
        return None
    table = pq.read_table(vocabulary, columns=[ID, KEY])
    keys = table[KEY].combine_chunks()
    if pa.types.is_string(keys.type) and pc.all(pc.utf8_is_decimal(keys)).as_py():
        keys = pc.utf8_lpad(keys, pc.max(pc.utf8_length(keys)).as_py(), "0")  # 9 before 10
    order: Array = np.zeros(size, np.int64)
    order[np.asarray(table[ID])[np.asarray(pc.sort_indices(keys))]] = np.arange(len(keys))
    return order


class UserCounts:
    """Counts users of a mapping that have an id: who has a history, who has positives.

    The size is how many ids there are, the padding counted; None for no users.
    """

    def __init__(self, size: int | None) -> None:
        self._is_there = np.zeros(size or 0, np.bool_)
        self._with_history = np.zeros(size or 0, np.bool_)
        self._positives = np.zeros(size or 0, np.int32)

    def add(self, users: Array, labels: Array, lengths: Array) -> None:
        """Take note of rows; many users without an id would count as one."""
        known = users > 0
        users, labels, lengths = users[known], labels[known], lengths[known]
        self._is_there[users] = True
        self._with_history[users[lengths > 0]] = True
        np.add.at(self._positives, users[labels == 1], 1)

    def findings(self, mapping: str, bound: float) -> Iterator[Finding]:
        """Say how many users lack a history, and how many positives they have."""
        positives = self._positives[self._is_there]
        if not len(positives):
            return
        without = int(np.count_nonzero(self._is_there & ~self._with_history))
        of = len(positives), bound, "users"
        yield share_finding("users without history", mapping, without, *of)
        mean = float(positives.mean())
        none = np.count_nonzero(positives == 0) / len(positives)
        says = (
            f"mean {mean:.1f}, median {np.median(positives):.0f}, most {positives.max():,}; "
            f"{none:.2%} of users have none"
        )
        yield Finding("positives per user", mapping, mean, None, False, says)
