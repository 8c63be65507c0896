"""What is known of each item, by id: how often it was taken, and its features' ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ..schemas.users_layout import POPULARITY, UNIFORM
from .population import Population

ID = "id"
KEY = "key"
COUNT = "count"


@dataclass(frozen=True)
class ItemTable:
    """The item's vocabulary file with its further columns; travels between processes as a path.

    The file has the columns id and key, as every vocabulary has, then count (interactions with
    the item) and one column of ids per item feature.
    """

    path: Path
    """``categories/<item>.parquet``"""

    def feature(self, name: str) -> npt.NDArray[np.int64]:
        """Ids of a feature by item id; id 0, which pads, has 0."""
        return _column(self.path, name, _stamp(self.path))

    def population(self, negatives: str = POPULARITY) -> Population:
        """What items are drawn from: all interactions, or every item once."""
        return _population(self.path, negatives, _stamp(self.path))


def _stamp(path: Path) -> tuple[int, int, int]:
    """What tells a file from the one that stood at its path before."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=32)
def _column(path: Path, name: str, stamp: tuple[int, int, int]) -> npt.NDArray[np.int64]:
    table = pq.read_table(path, columns=list(dict.fromkeys([ID, name])))
    by_id = np.zeros(table.num_rows + 1, np.int64)
    by_id[np.asarray(table[ID])] = np.asarray(table[name])
    return by_id


@lru_cache(maxsize=8)
def _population(path: Path, negatives: str, stamp: tuple[int, int, int]) -> Population:
    counts = _column(path, COUNT, stamp)
    if negatives == UNIFORM:
        counts = np.minimum(np.arange(len(counts), dtype=np.int64), 1)
    return Population.of_counts(counts)
