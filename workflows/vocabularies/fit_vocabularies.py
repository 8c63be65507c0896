"""Put together what the buckets found: the vocabularies, and the item's table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...sampling.item_table import COUNT, KEY
from ..behaviour.behaviour_columns import BehaviourColumns
from ..behaviour.kept_users import EVENTS, ITEMS, USERS, last_row_of_each
from .vocabulary import Vocabularies, sorted_distinct


def fit_vocabularies(
    columns: BehaviourColumns,
    kept: Path,
    vocabularies: Vocabularies,
    given: Mapping[str, tuple[pa.Array, pa.Array, str]],
) -> dict[str, int]:
    """Write the vocabularies of users, items and features.

    Args:
        columns: The log's columns.
        kept: What :class:`~merlin_sim.workflows.behaviour.kept_users.KeepLongUsers` wrote.
        vocabularies: Where to write.
        given: For item features that do not stand in the log: items, their values, and the
            value of items that are not among them.

    Returns:
        By name of a given feature, how many items of the log are not among its items.
    """
    users = read_all(kept / USERS)
    vocabularies.write(columns.user, sorted_distinct(users[KEY].combine_chunks()))
    for name in columns.user_features:
        values = read_all(kept / EVENTS, [name])
        vocabularies.write(name, sorted_distinct(values[name].combine_chunks()))

    found = read_all(kept / ITEMS)
    items = found[KEY].combine_chunks()
    keys = sorted_distinct(items)
    codes = np.asarray(pc.index_in(items, keys)).astype(np.int64)
    weights = np.asarray(found[COUNT]).astype(np.float64)
    counts = np.bincount(codes, weights, minlength=len(keys)).astype(np.int64)
    features, unknown = {}, {}
    for name in columns.item_features:
        if name in given:
            features[name] = look_up(keys, *given[name])
            unknown[name] = pc.index_in(keys, given[name][0]).null_count
        else:
            values = found[name].combine_chunks()
            time = found[f"{name} at"].combine_chunks()
            features[name] = values.take(last_row_of_each(codes, time, values))
    vocabularies.write_items(columns.item, keys, pa.array(counts), features)
    return unknown


def look_up(keys: pa.Array, known: pa.Array, values: pa.Array, otherwise: str) -> pa.Array:
    """The value of each key; of the first, where ``known`` has a key twice.

    >>> look_up(pa.array(["b", "z"]), pa.array(["a", "b"]), pa.array(["x", "y"]), "none")
    <pyarrow.lib.StringArray object at ...>
    [
      "y",
      "none"
    ]
    """
    return values.take(pc.index_in(keys, known)).fill_null(otherwise)


def read_all(directory: Path, columns: list[str] | None = None) -> pa.Table:
    """Read a directory of arrow files as one table."""
    tables = []
    for path in sorted(directory.glob("*.arrow")):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            tables.append(table if columns is None else table.select(columns))
    return pa.concat_tables(tables).combine_chunks()
