"""What is known of each item, by id: how often it was taken, and its features' ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError
from .parquet import UNREADABLE, why
from .users_layout import POPULARITY, UNIFORM

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

    def numbers(self, name: str) -> npt.NDArray[np.float32]:
        """Numbers by item id; id 0, which pads, has 0."""
        return _rows(self.path, name, 1, _stamp(self.path))[:, 0]

    def vectors(self, name: str, size: int) -> npt.NDArray[np.float32]:
        """Vectors by item id, [items + 1, size]; id 0 has zeros."""
        return _rows(self.path, name, size, _stamp(self.path))

    def lists(self, name: str, longest: int) -> npt.NDArray[np.int64]:
        """Lists of ids by item id, [items + 1, longest], 0 behind their end; id 0 has none."""
        return _lists(self.path, name, longest, _stamp(self.path))

    def counts(self, negatives: str = POPULARITY) -> npt.NDArray[np.int64]:
        """How often each item is drawn among all draws, by id: as often as taken, or each once."""
        counts = _column(self.path, COUNT, _stamp(self.path))
        return np.minimum(np.arange(len(counts)), 1) if negatives == UNIFORM else counts


def _stamp(path: Path) -> tuple[int, int, int]:
    """What tells a file from the one that stood at its path before."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_vocabulary(path: Path, columns: list[str]) -> pa.Table:
    """Read columns of a vocabulary.

    Raises:
        MerlinSimError: With the file, where it cannot be read.
    """
    try:
        return pq.read_table(path, columns=columns)
    except UNREADABLE as error:
        raise MerlinSimError(f"{path}: cannot be read ({why(error)}).") from error


@lru_cache(maxsize=32)
def _column(path: Path, name: str, stamp: tuple[int, int, int]) -> npt.NDArray[np.int64]:
    table = read_vocabulary(path, list(dict.fromkeys([ID, name])))
    by_id = np.zeros(table.num_rows + 1, np.int64)
    by_id[np.asarray(table[ID])] = np.asarray(table[name])
    return by_id


@lru_cache(maxsize=32)
def _rows(path: Path, name: str, size: int, stamp: tuple[int, int, int]) -> npt.NDArray[np.float32]:
    table = read_vocabulary(path, [ID, name])
    column = table[name].combine_chunks()
    values = column.flatten() if size > 1 or pa.types.is_list(column.type) else column
    rows = np.zeros((table.num_rows + 1, size), np.float32)
    rows[np.asarray(table[ID])] = np.asarray(values).reshape(-1, size)
    return rows


@lru_cache(maxsize=32)
def _lists(
    path: Path, name: str, longest: int, stamp: tuple[int, int, int]
) -> npt.NDArray[np.int64]:
    table = read_vocabulary(path, [ID, name])
    lists = table[name].combine_chunks()
    ids = np.asarray(table[ID])
    lengths = np.diff(np.asarray(lists.offsets))
    rows = np.zeros((table.num_rows + 1, longest), np.int64)
    elements = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows[np.repeat(ids, lengths), elements] = np.asarray(lists.flatten())
    return rows
