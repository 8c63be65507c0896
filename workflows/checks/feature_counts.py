"""One feature: how many values it has, which never train, how well it alone tells the label."""

from __future__ import annotations

import numpy as np

from . import kernels
from .checked_rows import Array

MOST_COUNTED = 1 << 22
"""Ids beyond share the counts of smaller ones, so that a feature's counts stay small."""
BUCKETS = 256
"""Of a number."""
PRIOR_ROWS = 20.0
"""So many rows of the mean rate are added to those of each id."""


class FeatureCounts:
    """Counts a feature's rows by value and label, of what trains and of what tests.

    Args:
        name: Its name.
        size: How many ids it has, the padding counted; None for a number, which is put in buckets
            of about as many rows each.
    """

    def __init__(self, name: str, size: int | None) -> None:
        """Begin with nothing counted."""
        self.name = name
        self._edges: Array | None = None
        self._size = BUCKETS + 2 if size is None else size
        self._is_number = size is None
        counted = min(MOST_COUNTED, 1 << (self._size - 1).bit_length())
        self._mask = counted - 1
        self._train = np.zeros((counted, 2), np.int64)
        self._test = np.zeros((counted, 2), np.int64)
        self._seen = np.zeros(self._size, np.bool_)
        self.smallest, self.largest = np.inf, -np.inf
        self.unseen_rows = 0
        """Rows of what tests whose id no training row has."""

    def train(self, values: Array, labels: Array) -> None:
        """Count rows that train."""
        if len(values):
            self.smallest = min(self.smallest, values.min())
            self.largest = max(self.largest, values.max())
        ids = self._ids(values)
        self._seen[ids] = True
        kernels.count_ids(ids, labels, self._mask, self._train)

    def test(self, values: Array, labels: Array) -> None:
        """Count rows that test."""
        ids = self._ids(values)
        self.unseen_rows += int(len(ids) - np.count_nonzero(self._seen[ids]))
        kernels.count_ids(ids, labels, self._mask, self._test)

    def _ids(self, values: Array) -> Array:
        return self._buckets(values) if self._is_number else values

    def _buckets(self, values: Array) -> Array:
        """A number's bucket; what is not a number has one of its own."""
        if self._edges is None:
            shares = np.linspace(0, 1, BUCKETS + 1)[1:-1]
            known = values[np.isfinite(values)]
            self._edges = np.unique(np.quantile(known, shares)) if len(known) else np.zeros(1)
        ids = np.searchsorted(self._edges, values, side="right")
        return np.where(np.isnan(values), BUCKETS + 1, ids)

    @property
    def is_number(self) -> bool:
        """Whether it is no id."""
        return self._is_number

    @property
    def values(self) -> int:
        """How many different values train; of a number, at most two are told apart."""
        if self._is_number:
            return 1 + int(self.smallest < self.largest)
        return int(np.count_nonzero(self._seen))

    def auc(self) -> float | None:
        """The AUC, on what tests, of the rate of clicks that each value has in training.

        None where what tests has one label alone.
        """
        sizes = self._train.sum(axis=1)
        mean = self._train[:, 1].sum() / max(1, sizes.sum())
        rates = (self._train[:, 1] + PRIOR_ROWS * mean) / (sizes + PRIOR_ROWS)
        found = np.flatnonzero(self._test.any(axis=1))
        return auc_of_counts(rates[found], self._test[found])


def auc_of_counts(scores: Array, counts: Array) -> float | None:
    """The AUC of groups of rows that share a score.

    >>> auc_of_counts(np.array([0.9, 0.1, 0.1]), np.array([[0, 2], [1, 1], [1, 0]]))
    0.8333333333333334

    Args:
        scores: [groups] The score of each.
        counts: [groups, 2] How many rows of label 0 and of label 1.

    Returns:
        None where all rows have one label.
    """
    _, group = np.unique(scores, return_inverse=True)
    zeros, ones = (np.bincount(group, counts[:, label]) for label in (0, 1))
    if not zeros.sum() or not ones.sum():
        return None
    below = np.cumsum(zeros) - zeros
    return float((ones * (below + zeros / 2)).sum() / (zeros.sum() * ones.sum()))
