"""The values of items' features that change, found in all rows of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...schemas.item_table import ID
from ..behaviour.behaviour_columns import BehaviourColumns
from ..features.known_values import ItemValues
from ..features.raw_values import matrix_of
from .group_histories import GroupHistories
from .item_statistics import KNOWN, MOMENT, PLACE, VALUE, merged, value_codes

Array = npt.NDArray[Any]
Compute = Callable[[Sequence[Any]], Iterator[Any]]
Varying = Mapping[str, Array]


def write_item_changes(
    group: GroupHistories, frames: Sequence[Any], directory: Path, compute: Compute
) -> tuple[str, ...]:
    """Write the changes of each feature of items that changes; returns their names.

    The rows are gone through twice: which items have several values of a feature is known once all
    have been seen, and only of these are rows kept.

    Args:
        group: Knows the columns.
        frames: Delayed partitions, as they come to ``group``.
        directory: Gets a file for each feature that changes.
        compute: Computes delayed values.
    """
    names = [n for n in group.columns.items_in_log if n not in group.columns.steady]
    if not names:
        return ()
    counted = [dask.delayed(group.statistics)(frame, n) for n, frame in enumerate(frames)]
    found = merged(list(compute(counted)))
    varying = {name: found.varying[name] for name in names if len(found.varying[name])}
    if not varying:
        return ()
    rows = [dask.delayed(_rows_of)(group, frame, n, varying) for n, frame in enumerate(frames)]
    tables: dict[str, list[pa.Table]] = {name: [] for name in varying}
    for of_frame in compute(rows):
        for name, table in of_frame.items():
            tables[name].append(table)
    values = ItemValues(directory)
    written = []
    for name, pieces in tables.items():
        changes = changes_of(pieces)
        if changes.num_rows:
            ids, moments = (np.asarray(changes[column]) for column in (ID, MOMENT))
            values.write(name, ids, moments, values_as_read(name, changes[VALUE], group.columns))
            written.append(name)
    return tuple(written)


def _rows_of(
    group: GroupHistories, frame: Any, number: int, varying: Varying
) -> dict[str, pa.Table]:
    rows = group.item_rows(frame, number, list(varying))
    found = {}
    for name, table in rows.items():
        chosen = np.asarray(table[KNOWN]) & np.isin(np.asarray(table[ID]), varying[name])
        found[name] = table.filter(pa.array(chosen))
    return found


def changes_of(pieces: Iterable[pa.Table]) -> pa.Table:
    """Keep the rows at which the value of an item changes, in the order of items and times.

    Of rows of one item and time the last one of the log counts.

    >>> rows = {ID: [1, 1, 1, 2], MOMENT: [5, 5, 7, 1], PLACE: [0, 1, 2, 3], VALUE: [3, 4, 4, 9]}
    >>> changes_of([pa.table(rows), pa.table({**rows, MOMENT: [1, 9, 9, 1]})]).to_pydict()[VALUE]
    [3, 4]
    """
    rows = pa.concat_tables(pieces).combine_chunks()
    ids, moments, places = (np.asarray(rows[name]) for name in (ID, MOMENT, PLACE))
    order = np.lexsort((places, moments, ids))
    ids, moments = ids[order], moments[order]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = (ids[1:] != ids[:-1]) | (moments[1:] != moments[:-1])
    order, ids = order[is_last], ids[is_last]
    codes = value_codes(rows[VALUE].combine_chunks())[order]
    is_change = np.ones(len(order), bool)
    is_change[1:] = (ids[1:] != ids[:-1]) | (codes[1:] != codes[:-1])
    own, of_row = np.unique(ids, return_inverse=True)
    is_change &= np.bincount(of_row[is_change], minlength=len(own))[of_row] > 1
    return rows.take(pa.array(order[is_change]))


def values_as_read(name: str, values: pa.ChunkedArray, columns: BehaviourColumns) -> Array:
    """Values as models read them: [changes], or [changes, width] of vectors and lists."""
    values = values.combine_chunks()
    for vector in columns.features.vectors:
        if vector.name == name:
            return matrix_of(values, vector.size)
    for feature in columns.features.lists:
        if feature.name == name:
            offsets = np.asarray(values.offsets)
            counts = np.diff(offsets)
            elements = np.arange(counts.sum()) - np.repeat(offsets[:-1] - offsets[0], counts)
            made = np.zeros((len(values), feature.longest), np.int64)
            made[np.repeat(np.arange(len(values)), counts), elements] = np.asarray(values.flatten())
            return made
    found = np.asarray(values)
    return found if name in columns.item_features else found.astype(np.float32)
