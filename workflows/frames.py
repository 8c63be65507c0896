"""The one place that knows whether a frame is pandas with arrow columns or cudf.

Operators ask here for arrays and columns and stay blind to the backend. On CPU, list columns
are arrow lists inside pandas (one buffer of values, one of offsets, no Python object a row). The
cudf branches run only where cudf is installed; they use its public interface alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from merlin.core import dispatch
from merlin.core.compat import cudf

LONGEST_INT32_LIST = np.iinfo(np.int32).max
Keys = Callable[[Any], pa.Array]
"""Gives the keys of some rows, by their numbers."""


class ArrowLists(pd.arrays.ArrowExtensionArray):
    """Arrow lists as a pandas column that can be printed: pandas 1.5 cannot do that alone."""

    def __array__(self, dtype: Any = None) -> Any:
        lists = self.__arrow_array__().to_pandas().to_numpy()
        return lists if dtype is None else lists.astype(dtype)


def uses_gpu() -> bool:
    """Return whether frames are made on a GPU."""
    return cudf is not None


def spill() -> None:
    """Have cudf move to the host's memory what is not in use, in this process."""
    cudf.set_option("spill", True)


def is_on_gpu(frame: Any) -> bool:
    """Return whether a frame or series is cudf's."""
    return not isinstance(frame, (pd.DataFrame, pd.Series))


def array_module(frame: Any) -> Any:
    """Return numpy, or cupy for a cudf frame."""
    if not is_on_gpu(frame):
        return np
    import cupy

    return cupy


def on_host(array: Any) -> Any:
    """Return an array of numpy, of one of numpy or of cupy."""
    return array if isinstance(array, np.ndarray) else array.get()


def arrow_of(series: Any) -> pa.Array:
    """Return a pandas series as one arrow array."""
    array = pa.array(series, from_pandas=True)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    return array


def values_of(series: Any) -> Any:
    """Return a column of numbers as an int64 array."""
    if is_on_gpu(series):
        return series.values.astype("int64")
    return np.asarray(series).astype(np.int64, copy=False)


def lists_of_arrow(array: pa.Array) -> tuple[Any, Any]:
    """Return an arrow array of lists of whole numbers as values and offsets."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    values = np.asarray(array.flatten()).astype(np.int64, copy=False)
    return values, offsets - offsets[0]


def list_column(values: Any, offsets: Any, like: Any) -> Any:
    """Make a column of lists for a frame such as ``like``."""
    if is_on_gpu(like):
        return dispatch.create_multihot_col(offsets, values)
    return pd.Series(ArrowLists(arrow_lists(values, offsets)))


def arrow_lists(values: Any, offsets: Any) -> pa.Array:
    """Make an arrow list array of values and offsets, without copying the values."""
    if offsets[-1] > LONGEST_INT32_LIST:
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values))


def frame_from_arrow(table: pa.Table) -> Any:
    """Make a frame of an arrow table: cudf's where Merlin uses a GPU, else pandas'."""
    return (
        cudf.DataFrame.from_arrow(without_dictionaries(table)) if uses_gpu() else host_frame(table)
    )


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Text in the place of dictionaries, of which cudf would make categories."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(
                index, field.name, table[field.name].cast(field.type.value_type)
            )
    return table


def host_frame(table: pa.Table) -> pd.DataFrame:
    """Make a pandas frame of an arrow table, on any machine."""
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            columns[name] = pd.Series(ArrowLists(column))
        elif pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            columns[name] = pd.Series(pd.arrays.ArrowExtensionArray(column))
        else:
            columns[name] = column.to_pandas()
    return pd.DataFrame(columns)


def frame_to_arrow(frame: Any) -> pa.Table:
    """Make an arrow table of a frame."""
    if is_on_gpu(frame):
        return frame.to_arrow(preserve_index=False)
    return pa.table({name: arrow_of(frame[name]) for name in frame.columns})


def column_to_arrow(frame: Any, name: str) -> pa.Array:
    """Make one arrow array of a column of a frame."""
    return frame_to_arrow(new_frame({name: frame[name]}, like=frame))[name].combine_chunks()


def new_frame(columns: dict[str, Any], like: Any) -> Any:
    """Make a frame of arrays and columns, which are not copied, of the kind that ``like`` is."""
    if is_on_gpu(like):
        return cudf.DataFrame(columns)
    return pd.DataFrame(columns, copy=False)


def distinct(array: pa.Array) -> pa.Array:
    """The different values of an array; of a dictionary those that occur."""
    found = pc.unique(array)
    return found.dictionary_decode() if pa.types.is_dictionary(found.type) else found


def ordered_codes(array: pa.Array) -> Any:
    """Number an array's distinct values in their order (strings by their UTF-8 bytes).

    >>> ordered_codes(pa.array(["b", "a", "b", "c"])).tolist()
    [1, 0, 1, 2]
    """
    encoded = array.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(len(rank))
    return rank[np.asarray(encoded.indices)]


def order_of_rows(keys: list[Any]) -> Any:
    """Order rows by several columns of small numbers, the first counting most."""
    joined = join_keys(keys)
    return np.lexsort(keys[::-1]) if joined is None else np.argsort(joined, kind="stable")


def keys_of(array: pa.Array) -> Keys:
    """An array as keys to order rows by."""
    return lambda rows: array.take(pa.array(rows))


def order_by(codes: Any, keys: Sequence[Keys], rows: Any = None) -> Any:
    """Order rows, all if None, by small numbers and by keys, the first counting most.

    Each further key is asked for only of rows that are equal in all before it.

    >>> keys = [keys_of(pa.array([7, 7, 5])), keys_of(pa.array(["b", "a", "c"]))]
    >>> order_by(np.array([1, 1, 1]), keys).tolist()
    [2, 1, 0]
    """
    rows = np.arange(len(codes)) if rows is None else rows
    codes, first = codes[rows], small_numbers(keys[0](rows))
    order = order_of_rows([codes, first])
    begins = differs(codes[order]) | differs(first[order])
    order = rows[order]
    for key in keys[1:]:
        equal = ~begins
        equal[:-1] |= ~begins[1:]
        indices = np.flatnonzero(equal)
        groups, values = np.cumsum(begins[indices]), ordered_codes(key(order[indices]))
        within = order_of_rows([groups, values])
        order[indices] = order[indices][within]
        begins[indices] = differs(groups) | differs(values[within])
    return order


def differs(values: Any) -> Any:
    """Whether each value is another than the one before it."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


def small_numbers(array: pa.Array) -> Any:
    """Numbers in the order of an array's values: whole numbers less the least, else codes."""
    is_whole = pa.types.is_signed_integer(array.type) or pa.types.is_timestamp(array.type)
    if is_whole and len(array) and not array.null_count:
        values = np.asarray(pc.cast(array, pa.int64()))
        least = values.min()
        if int(values.max()) - int(least) < 1 << 40:
            return values - least
    return ordered_codes(array)


def join_keys(keys: list[Any]) -> Any:
    """Make one number of several, in the same order; None where 63 bits are too few.

    Sorting one column of numbers takes a third of the time that sorting three takes.
    """
    sizes = [int(key.max()) + 1 if len(key) else 1 for key in keys]
    if math.prod(sizes) >= 1 << 63:
        return None
    joined = keys[0].astype(np.int64)
    for key, size in zip(keys[1:], sizes[1:], strict=True):
        joined = joined * size + key
    return joined
