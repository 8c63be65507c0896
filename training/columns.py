"""Decoded rows: arrow columns seen as numpy arrays, without a Python object per row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ScalarColumn:
    """One value per row."""

    values: Array
    nulls: int = 0


@dataclass(frozen=True)
class ListColumn:
    """One list per row: row i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Array
    offsets: Array
    nulls: int = 0

    def row_of(self, position: int) -> int:
        """Find the row to which ``values[offsets[0] + position]`` belongs."""
        found = np.searchsorted(self.offsets, self.offsets[0] + position, side="right")
        return int(found) - 1

    @property
    def used(self) -> Array:
        """The values that belong to a row (a slice of a table keeps the others in memory)."""
        used: Array = self.values[self.offsets[0] : self.offsets[-1]]
        return used


Column = ScalarColumn | ListColumn


@dataclass(frozen=True)
class DecodedRows:
    """Rows ``first_row`` to ``first_row + rows`` of one file (or partition) of a dataset."""

    columns: dict[str, Column]
    rows: int
    origin: str
    """Where the rows come from, for messages: a file's path, a partition's number."""
    first_row: int
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Smallest and largest value of the columns for which the file's statistics say them."""


def decode(table: pa.Table | pa.RecordBatch, origin: str, first_row: int) -> DecodedRows:
    """See every column of ``table`` as numpy; copies only what arrow keeps in another form."""
    columns = {name: _column(table.column(name)) for name in table.schema.names}
    return DecodedRows(columns, table.num_rows, origin, first_row)


def _column(array: pa.Array | pa.ChunkedArray) -> Column:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a table without rows keeps its chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _column(array.cast(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        values = array.flatten()
        offsets = np.arange(len(array) + 1, dtype=np.int64) * kind.list_size
        return ListColumn(_numpy(values), offsets, values.null_count + array.null_count)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = array.offsets.to_numpy()
        start, stop = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        used = array.values.slice(start, stop - start)
        return ListColumn(_numpy(used), _from_zero(offsets), used.null_count + array.null_count)
    return ScalarColumn(_numpy(array), array.null_count)


def _from_zero(offsets: Array) -> Array:
    if not len(offsets):
        return np.zeros(1, np.int64)
    from_zero: Array = offsets - offsets[0] if offsets[0] else offsets
    return from_zero


def _numpy(array: pa.Array) -> Array:
    """A view where arrow's memory is numpy's; nulls become NaN (and are refused later)."""
    result: Array = array.to_numpy(zero_copy_only=False)
    return result
