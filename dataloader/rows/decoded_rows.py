"""Decoded rows: arrow columns seen as numpy arrays, without a Python object per row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ScalarColumn:
    """One value per row."""

    values: Array
    missing: int | None = None
    """The first row without a value; in its place stands 0, or NaN among floats."""


@dataclass(frozen=True)
class ListColumn:
    """One list per row: row i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: Array
    offsets: Array
    missing: int | None = None
    """The first row without a list, or with an element without a value."""
    bounds: tuple[Any, Any] | None = None
    """The smallest and the largest value, where somebody has looked already."""

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

    def where(self, row: int) -> str:
        """Name one of these rows (from 0) as a message does: those of a file from 1."""
        return f"{self.origin}, row {self.first_row + row + 1}"


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
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        used = array.values.slice(array.offset * size, len(array) * size)
        return _list_column(array, used, np.arange(len(array) + 1, dtype=np.int64) * size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = array.offsets.to_numpy()
        start, stop = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        return _list_column(array, array.values.slice(start, stop - start), _from_zero(offsets))
    values = _plain(array)
    return ScalarColumn(_numpy(values), _first_null(values))


def _list_column(array: pa.Array, used: pa.Array, offsets: Array) -> ListColumn:
    used = _plain(used)
    column = ListColumn(_numpy(used), offsets)
    element = _first_null(used)
    rows = [_first_null(array), None if element is None else column.row_of(element)]
    return replace(column, missing=min((row for row in rows if row is not None), default=None))


def _plain(array: pa.Array) -> pa.Array:
    """Look up what is stored as places in a dictionary."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _first_null(array: pa.Array) -> int | None:
    if not array.null_count:
        return None
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


def _from_zero(offsets: Array) -> Array:
    if not len(offsets):
        return np.zeros(1, np.int64)
    from_zero: Array = offsets - offsets[0] if offsets[0] else offsets
    return from_zero


def _numpy(array: pa.Array) -> Array:
    """A view where arrow's memory is numpy's; what is missing becomes 0, among floats NaN."""
    if array.null_count and not pa.types.is_floating(array.type):
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    result: Array = array.to_numpy(zero_copy_only=False)
    return result
