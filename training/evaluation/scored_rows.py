"""The score of each row, by user: from this, differences between runs are judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...foundation.files import open_replacing

Array = npt.NDArray[Any]

THRESHOLDS = 8000
"""Thresholds of the AUC, as published."""
CALIBRATION_BINS = 20
"""Bins of equal width in which predicted and observed click rates are compared."""
SMALLEST_PROBABILITY = 1e-7
"""Log loss counts probabilities no nearer to 0 and 1 than this, as Keras does."""


def threshold_bins(labels: Array, probabilities: Array) -> Array:
    """Return the bin of each row, those of non-clicks before those of clicks."""
    bins = np.ceil(probabilities.astype(np.float32) * np.float32(THRESHOLDS - 1)) - 1
    between = np.clip(bins, 0, THRESHOLDS - 2).astype(np.int64)
    return np.asarray(between + (labels > 0.5) * (THRESHOLDS - 1))


def losses_of(labels: Array, probabilities: Array) -> Array:
    """Return of each row -log of the probability given to what happened."""
    bounded = np.clip(
        probabilities.astype(np.float64), SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY
    )
    losses: Array = -np.log(np.where(labels, bounded, 1 - bounded))
    return losses


def calibration_bins(probabilities: Array) -> Array:
    """Return the bin of each row."""
    bins = (probabilities * CALIBRATION_BINS).astype(np.int64)
    return np.asarray(np.minimum(bins, CALIBRATION_BINS - 1))


def exact_auc(labels: Array, probabilities: Array) -> float | None:
    """Return the share of pairs of a click and another row that are in order; equal ones half.

    >>> exact_auc(np.array([False, True, True]), np.array([0.2, 0.2, 0.3]))
    0.75
    >>> exact_auc(np.array([True]), np.array([0.2])) is None
    True
    """
    clicks, others = probabilities[labels], np.sort(probabilities[~labels])
    if not len(clicks) or not len(others):
        return None
    below = np.searchsorted(others, clicks, "left").sum()
    not_above = np.searchsorted(others, clicks, "right").sum()
    return int(below + not_above) / 2 / (len(clicks) * len(others))


TEST_SCORES = "test_scores.parquet"
COMPARED = {"user": pa.int64(), "label": pa.bool_(), "score": pa.float32()}
"""The columns by which runs are compared."""
JOINED = {"row": pa.int64(), "position": pa.int64(), "item": pa.int64()}
"""The columns by which scores are joined with the dataset; null where there is no such thing."""
COLUMNS = ("row", "position", "user", "item", "label", "score")
NONE = -1
"""The position of a sample that is a stored row, and the item of a dataset without items."""


class SampleLocations(NamedTuple):
    """Where samples are in the dataset, [samples] int64 each."""

    rows: Array
    """Their rows among those of the mapping's files, from 0; of users, the rows of the users."""
    positions: Array
    """Of users, the positions of their targets in the history, from 0; else :data:`NONE`."""
    items: Array
    """The ids of their target items, or :data:`NONE`."""


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows of an evaluation, [rows] each, in the order of users, scores and labels."""

    users: Array
    """Ids, int64; of users without one, numbers above 2^40 that tell them apart."""
    labels: Array
    """Clicks where true."""
    scores: Array
    """Click probabilities, float32."""
    locations: SampleLocations | None = None
    """Where the rows stand in the dataset, if that was kept."""

    def write(self, path: Path) -> None:
        """Write a parquet file that is there whole or not at all."""
        columns = (self.users, self.labels, self.scores)
        arrays = {
            name: pa.array(column, kind)
            for (name, kind), column in zip(COMPARED.items(), columns, strict=True)
        }
        absent = np.full(len(self.users), NONE)
        locations = (absent, absent, absent) if self.locations is None else self.locations
        for (name, kind), column in zip(JOINED.items(), locations, strict=True):
            arrays[name] = pa.array(column, kind, mask=column == NONE)
        with open_replacing(path) as file:
            pq.write_table(pa.table({name: arrays[name] for name in COLUMNS}), file)

    @classmethod
    def read(cls, path: Path) -> ScoredRows:
        """Read what :meth:`write` wrote."""
        try:
            table = pq.read_table(path, schema=pa.schema(COMPARED.items()))
        except (OSError, pa.ArrowException) as error:
            raise MerlinSimError(f"{path}: expected the scores of a run: {error}") from error
        users, labels, scores = (np.asarray(table[name]) for name in COMPARED)
        refuse_not_a_number(int(np.isnan(scores).sum()), len(scores), f"{path}: the scores")
        return cls(users, labels, scores)


def refuse_not_a_number(wrong: int, of: int, what: str) -> None:
    """Refuse scores of which some are NaN."""
    if wrong:
        raise MerlinSimError(
            f"{what} should be numbers. Received: NaN for {wrong:,} of {of:,} rows. The "
            "training of these weights may have diverged: a smaller `lr`, or an earlier checkpoint."
        )
