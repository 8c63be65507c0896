"""A column of arrow, seen as numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..schemas.parquet import is_list

Array = npt.NDArray[Any]


class Column(NamedTuple):
    """A column of some rows, seen as numpy: no Python object per row, and few copies."""

    values: Array
    """One a row; of lists those of all rows, one after the other."""
    offsets: Array | None = None
    """Of lists, where each row's values begin, and after the last row where they end."""
    missing: int | None = None
    """The first row without a value, or with an element without one; 0 or NaN stands there."""
    bounds: tuple[Any, Any] | None = None
    """The smallest and the largest value, where they have been computed."""

    @property
    def rows(self) -> int:
        """Count the rows."""
        return len(self.values) if self.offsets is None else len(self.offsets) - 1

    @property
    def kind(self) -> str:
        """Describe it, for messages."""
        return str(self.values.dtype) if self.offsets is None else f"lists of {self.values.dtype}"

    def row_of(self, position: int) -> int:
        """Find the row to which a value belongs."""
        if self.offsets is None:
            return position
        return int(np.searchsorted(self.offsets, position, side="right")) - 1


def pad_left(values: Array, lengths: Array, result: Array) -> None:
    """Write lists to the right end of each row, zeros to their left.

    Of a list longer than a row the last values stay, which are the newest.
    """
    width = result.shape[1]
    if (lengths == width).all():
        result[...] = values.reshape(result.shape)
        return
    if (lengths > width).any():
        ends = np.repeat(np.cumsum(lengths), lengths)
        values = values[ends - np.arange(len(values)) <= width]
    result[...] = 0
    is_used = np.arange(width) >= width - np.arange(width + 1)[:, None]  # by length
    result[is_used[np.minimum(lengths, width)]] = values.astype(result.dtype, copy=False)


def decode(array: pa.Array | pa.ChunkedArray) -> Column:
    """See a column of arrow as numpy; copy only what arrow keeps in another form."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if not is_list(kind):
        values = _plain(array)
        return Column(_numpy(values), None, _first_null(values))
    if pa.types.is_fixed_size_list(kind):
        offsets = (array.offset + np.arange(len(array) + 1, dtype=np.int64)) * kind.list_size
    else:
        offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int64)
    used = _plain(array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    column = Column(_numpy(used), offsets - offsets[0] if offsets[0] else offsets)
    element = _first_null(used)
    missing = [_first_null(array), None if element is None else column.row_of(element)]
    return column._replace(missing=min((row for row in missing if row is not None), default=None))


def _plain(array: pa.Array) -> pa.Array:
    """Look up what is stored as indices of a dictionary."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _first_null(array: pa.Array) -> int | None:
    if not array.null_count:
        return None
    return int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))


def _numpy(array: pa.Array) -> Array:
    """A view where arrow's memory is numpy's; what is missing becomes 0, among floats NaN."""
    if array.null_count and not pa.types.is_floating(array.type):
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    result: Array = array.to_numpy(zero_copy_only=False)
    return result
