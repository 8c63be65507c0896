"""Table of items, by id: how often each was taken, and its features' ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .parquet import is_list, reading
from .users_layout import POPULARITY, UNIFORM

ID = "id"
KEY = "key"
COUNT = "count"
SHOWN = "shown"
"""How often it was taken or shown: in a fitted workflow's table, where encodings need it."""
OWN_COLUMNS = (ID, KEY, COUNT, SHOWN)
"""What a table of items has besides features, none of which may be called like that."""


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
        return self._by_id(name, 1, np.int64)[:, 0]

    def numbers(self, name: str) -> npt.NDArray[np.float32]:
        """Numbers by item id; id 0, which pads, has 0."""
        return self._by_id(name, 1, np.float32)[:, 0]

    def vectors(self, name: str, size: int) -> npt.NDArray[np.float32]:
        """Vectors by item id, [items + 1, size]; id 0 has zeros."""
        return self._by_id(name, size, np.float32)

    def lists(self, name: str, longest: int) -> npt.NDArray[np.int64]:
        """Lists of ids by item id, [items + 1, longest], 0 behind their end; id 0 has none."""
        return self._by_id(name, longest, np.int64)

    def counts(self, negatives: str = POPULARITY) -> npt.NDArray[np.int64]:
        """How often each item is drawn among all draws, by id: as often as taken, or each once."""
        counts = self.feature(COUNT)
        return np.minimum(np.arange(len(counts)), 1) if negatives == UNIFORM else counts

    def _by_id(self, name: str, width: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        status = self.path.stat()
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        return _rows(self.path, name, width, np.dtype(dtype), stamp)


def read_vocabulary(path: Path, columns: list[str]) -> pa.Table:
    """Read columns of a vocabulary."""
    with reading(path):
        return pq.read_table(path, columns=columns)


@lru_cache(maxsize=32)
def _rows(
    path: Path, name: str, width: int, dtype: np.dtype[Any], stamp: tuple[int, int, int]
) -> npt.NDArray[Any]:
    """Return a column's values by id; a file is known by its stamp, as another may replace it."""
    table = read_vocabulary(path, list(dict.fromkeys([ID, name])))
    column, ids = table[name].combine_chunks(), np.asarray(table[ID])
    rows = np.zeros((table.num_rows + 1, width), dtype)
    if not is_list(column.type):
        rows[ids, 0] = np.asarray(column)
        return rows
    lengths = np.asarray(pc.list_value_length(column))
    elements = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows[np.repeat(ids, lengths), elements] = np.asarray(column.flatten())
    return rows
