"""Which features of items change, and when: found in what the buckets of a log kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...schemas.item_table import KEY
from ..behaviour.behaviour_columns import PLACE, BehaviourColumns
from ..behaviour.kept_users import ITEM_ROWS, ITEMS, VARIES, read_all
from ..features.feature import ITEM, Number
from ..features.fitted_numbers import FittedNumbers, check_made
from ..features.item_values import ItemValues
from ..features.known_values import changes_by_code, codes_of, is_known, ordered_times
from ..features.raw_vectors import keys_of_lists, matrix_of
from .vocabulary import Vocabularies


@dataclass(frozen=True)
class ItemChanges:
    """What was known of items from when on, where that changes: raw values of one column."""

    items: pa.Array
    """[changes] Whose each is."""
    times: npt.NDArray[np.int64]
    """[changes] Of one item in their order."""
    values: pa.Array

    def without(self, known: pa.Array) -> ItemChanges:
        """Leave out what is known of some items."""
        kept = pc.invert(pc.is_in(self.items, known))
        return ItemChanges(
            self.items.filter(kept), self.times[np.asarray(kept)], self.values.filter(kept)
        )


Changes = dict[str, ItemChanges]
"""By stored column, of those that change."""


def find_changes(columns: BehaviourColumns, kept: Path, names: tuple[str, ...]) -> Changes:
    """Find the changes of items' features; columns whose values stay have none.

    Args:
        columns: The log's columns.
        kept: What :class:`~merlin_sim.workflows.behaviour.kept_users.KeepLongUsers` wrote.
        names: The features that stand in the log, as they are stored.
    """
    if not names:
        return {}
    found = read_all(kept / ITEMS)
    items = found[KEY].combine_chunks().dictionary_encode()
    codes = np.asarray(items.indices).astype(np.int64)
    changes = {}
    for name in names:
        known = is_known(columns.features, name, found)
        varies = np.zeros(len(items.dictionary), bool)
        varies[codes[np.asarray(found[VARIES + name])]] = True
        own, of_known = np.unique(codes[known], return_inverse=True)
        values = codes_of(found[name].combine_chunks().filter(pa.array(known)))
        varies[own[changes_by_code(values, of_known)]] = True
        if varies.any():
            of_name = _changes_of(columns, kept, name, items.dictionary.filter(pa.array(varies)))
            if len(of_name.items):
                changes[name] = of_name
    return changes


def _changes_of(columns: BehaviourColumns, kept: Path, name: str, items: pa.Array) -> ItemChanges:
    """Read the rows of some items, and keep those at which their value changes."""
    pieces = []
    for path in sorted((kept / ITEM_ROWS).glob("*.arrow")):
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        chosen = np.asarray(pc.is_in(table[columns.item].combine_chunks(), items))
        chosen &= is_known(columns.features, name, table)
        pieces.append(
            table.select([columns.item, columns.timestamp, PLACE, name]).filter(pa.array(chosen))
        )
    rows = pa.concat_tables(pieces).combine_chunks()
    item, time, place, value = (column.combine_chunks() for column in rows.columns)
    codes, moments = np.asarray(pc.index_in(item, items)), ordered_times(time)
    order = np.lexsort((np.asarray(place), moments, codes))
    codes, moments = codes[order], moments[order]
    is_last = np.ones(len(order), bool)  # of rows of one time
    is_last[:-1] = (codes[1:] != codes[:-1]) | (moments[1:] != moments[:-1])
    order, codes, moments = order[is_last], codes[is_last], moments[is_last]
    numbers = codes_of(value)[order]
    is_change = np.ones(len(order), bool)
    is_change[1:] = (codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])
    is_change &= np.bincount(codes[is_change], minlength=len(items))[codes] > 1
    chosen = pa.array(order[is_change])
    return ItemChanges(item.take(chosen), moments[is_change], value.take(chosen))


def bucketed_changes(changes: Changes, columns: BehaviourColumns, fitted: FittedNumbers) -> Changes:
    """Put the keys of buckets in the place of numbers that become ids."""
    made = dict(changes)
    for number in columns.features.bucketed(ITEM):
        if number.name in made:
            found = made[number.name]
            keys = fitted.bucket_array(number, found.values)
            made[number.name] = replace(found, values=keys)
    return made


def write_item_values(
    directory: Path,
    changes: Changes,
    columns: BehaviourColumns,
    vocabularies: Vocabularies,
    fitted: FittedNumbers,
) -> ItemValues | None:
    """Write the changes in ids and in numbers as models read them; none where nothing changes.

    Raises:
        UnfitNumberError: Where operators make no number of one.
    """
    if not changes:
        return None
    for number in columns.features:
        if isinstance(number, Number) and number.name in changes:
            raw = np.asarray(changes[number.name].values.fill_null(np.nan), np.float64)
            check_made(number, raw, fitted.values(number, raw))
    values = ItemValues(directory)
    for name, found in bucketed_changes(changes, columns, fitted).items():
        keys = vocabularies.known(columns.item, found.items.type)
        ids = np.asarray(pc.index_in(found.items, keys)).astype(np.int64) + 1
        order = np.argsort(ids, kind="stable")
        made = _made(name, found.values, columns, vocabularies, fitted)
        values.write(name, ids[order], found.times[order], made[order])
    return values


def _made(
    name: str,
    values: pa.Array,
    columns: BehaviourColumns,
    vocabularies: Vocabularies,
    fitted: FittedNumbers,
) -> npt.NDArray[np.generic]:
    features = columns.features
    if name in columns.item_features:
        keys = vocabularies.known(name, values.type)
        return np.asarray(pc.index_in(values, keys)).astype(np.int64) + 1
    for vector in features.vectors:
        if vector.name == name:
            return matrix_of(values, vector.size)
    for feature in features.lists:
        if feature.name == name:
            return _ids_of_lists(values, vocabularies.known(name, pa.string()), feature.longest)
    raw = np.asarray(values.fill_null(np.nan), np.float64)
    for number in features:
        if isinstance(number, Number) and number.name == name:
            return fitted.values(number, raw).astype(np.float32)
    return raw.astype(np.float32)


def _ids_of_lists(stored: pa.Array, keys: pa.Array, longest: int) -> npt.NDArray[np.int64]:
    """[changes, longest] The ids of lists of keys, 0 behind their end."""
    found, rows = keys_of_lists(stored, longest)
    ids = np.asarray(pc.index_in(found, keys)).astype(np.int64) + 1
    counts = np.bincount(rows, minlength=len(stored))
    elements = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    made = np.zeros((len(stored), longest), np.int64)
    made[rows, elements] = ids
    return made
