"""Put together what the buckets found: the vocabularies, and the item's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...schemas.item_table import COUNT, KEY
from ..behaviour.behaviour_columns import SECONDS, BehaviourColumns
from ..behaviour.kept_users import (
    EVENTS,
    ITEMS,
    LAST_PLACE,
    LAST_TIME,
    SHOWN,
    USERS,
    last_row_of_each,
    read_all,
)
from ..behaviour.split import Split
from ..features.feature import INTERACTION, ITEM, USER, Number
from ..features.fitted_numbers import FittedNumbers, Learned, fit_numbers
from ..features.known_values import is_known
from ..features.raw_vectors import keys_of_lists, matrix_of
from .item_changes import Changes, bucketed_changes
from .vocabulary import Vocabularies


@dataclass(frozen=True)
class Train:
    """Tells which events train."""

    split: Split
    user: str
    timestamp: str

    @property
    def columns(self) -> tuple[str, ...]:
        """What it looks at."""
        return (self.user, self.timestamp, *self.split.columns)

    def __call__(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        """Whether each event trains."""
        trains: npt.NDArray[np.bool_] = self.split.parts_of(events, self.user, self.timestamp) == 0
        return trains


def fit_vocabularies(
    columns: BehaviourColumns,
    kept: Path,
    vocabularies: Vocabularies,
    given: Mapping[str, tuple[pa.Array, pa.Array, str]],
    train: Train | None = None,
    before: FittedNumbers | None = None,
    changes: Changes | None = None,
) -> tuple[dict[str, int], FittedNumbers]:
    """Write the vocabularies of users, items and features, or let them grow.

    Keys that they have keep their ids, and items what is known of them; new ones come behind.

    Args:
        columns: The log's columns.
        kept: What :class:`~merlin_sim.workflows.behaviour.kept_users.KeepLongUsers` wrote.
        vocabularies: Where to write.
        given: For item features that do not stand in the log: items, their values, and the
            value of items that are not among them.
        train: Tells which of the events train; None for all. Users' and interactions' numbers are
            fitted on these.
        before: Where vocabularies grow: what the operators of numbers have learned, which stays.
        changes: Of items' features that change, all values that samples may have.

    Returns:
        By name of a given feature, how many items of the log are not among its items; and what
        the operators of numbers have learned.
    """
    learned = _fit_events(columns, kept, train) if before is None else dict(before.learned)
    _add_users(columns, kept, vocabularies, FittedNumbers(learned))
    found = read_all(kept / ITEMS)
    items = found[KEY].combine_chunks()
    known = vocabularies.known(columns.item, items.type)
    keys = vocabularies.new_keys(columns.item, items, known)
    counts_of_known = None if before is None else pa.array(_count(items, known, found[COUNT]))
    counts = pa.array(_count(items, keys, found[COUNT]))
    found = found.filter(pc.is_in(items, keys)).combine_chunks()
    codes = np.asarray(pc.index_in(found[KEY].combine_chunks(), keys)).astype(np.int64)
    features, unknown = {}, {}
    for name in columns.item_features:
        if name in given:
            features[name] = look_up(keys, *given[name])
            unknown[name] = pc.index_in(keys, given[name][0]).null_count
        else:
            features[name] = _last_values(columns, found, codes, name)
    more = {name: _last_values(columns, found, codes, name) for name in columns.of_items}
    if before is None:
        learned |= _fit_items(columns, {**features, **more})
    fitted = FittedNumbers(learned)
    for number in columns.features.bucketed(ITEM):
        features[number.name] = fitted.bucket_array(number, features[number.name])
    occurring = {
        name: change.values
        for name, change in bucketed_changes(changes or {}, columns, fitted).items()
    }
    more = _items_columns(columns, fitted, more, vocabularies, occurring)
    if columns.features.encodings:
        shown = _count(found[KEY].combine_chunks(), keys, found[SHOWN])
        prior, newest = _prior(columns, kept, train), _newest(kept)
        fitted = replace(fitted, prior=prior, counted_until=newest)
        more |= _totals(columns, fitted, keys, features, shown, np.asarray(counts))
    vocabularies.add_items(columns.item, keys, counts, features, more, counts_of_known, occurring)
    return unknown, fitted


def _add_users(
    columns: BehaviourColumns, kept: Path, vocabularies: Vocabularies, fitted: FittedNumbers
) -> None:
    """Write the vocabularies of users and of their features."""
    users = read_all(kept / USERS)
    vocabularies.add(columns.user, users[KEY].combine_chunks())
    of_both = (USER, INTERACTION)
    bucketed = {n.name: n for of in of_both for n in columns.features.bucketed(of)}
    for name in (*columns.user_features, *columns.contexts):
        values = read_all(kept / EVENTS, [name])[name].combine_chunks()
        if name in bucketed:
            values = fitted.bucket_array(bucketed[name], values)
        vocabularies.add(name, values)


def _last_values(
    columns: BehaviourColumns, found: pa.Table, codes: npt.NDArray[np.int64], name: str
) -> pa.Array:
    """Each item's last known value of a feature that stands in the log."""
    time, places = (found[more + name].combine_chunks() for more in (LAST_TIME, LAST_PLACE))
    known = is_known(columns.features, name, found)
    last = last_row_of_each(codes, time, np.asarray(places), known)
    return found[name].combine_chunks().take(last)


def _count(items: pa.Array, keys: pa.Array, counts: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Add up the counts of each key, of rows whose item is one of them."""
    codes = pc.index_in(items, keys)
    is_one = np.asarray(codes.is_valid())
    weights = np.asarray(counts).astype(np.float64)[is_one]
    codes = np.asarray(codes.drop_null()).astype(np.int64)
    return np.bincount(codes, weights, minlength=len(keys)).astype(np.int64)


def _prior(columns: BehaviourColumns, kept: Path, train: Train | None) -> float:
    """At what share the events that train were taken."""
    if not columns.labels:
        return 1.0
    names = dict.fromkeys([*(train.columns if train else ()), *columns.labels])
    events = read_all(kept / EVENTS, list(names))
    if train is not None:
        events = events.filter(pa.array(train(events)))
    return float(np.mean(np.asarray(events[columns.labels[0]]))) if events.num_rows else 0.0


def _newest(kept: Path) -> float:
    """The time of the newest event, in seconds."""
    return float(pc.max(read_all(kept / EVENTS, [SECONDS])[SECONDS]).as_py())


def _totals(
    columns: BehaviourColumns,
    fitted: FittedNumbers,
    keys: pa.Array,
    features: Mapping[str, pa.Array],
    shown: npt.NDArray[Any],
    taken: npt.NDArray[Any],
) -> dict[str, pa.Array]:
    """What all events say of each item's keys: for requests, and the next day's log."""
    found: dict[str, pa.Array] = {}
    for encoding in columns.features.encodings:
        values = keys if encoding.column == columns.item else features[encoding.column]
        ids = np.asarray(values.dictionary_encode().indices)
        of_key = [np.bincount(ids, of_item)[ids] for of_item in (shown, taken)]
        numbers = fitted.encode(encoding, columns.features.smoothing, *of_key)
        found |= {name: pa.array(column) for name, column in numbers.items()}
    return found


def _fit_events(columns: BehaviourColumns, kept: Path, train: Train | None) -> dict[str, Learned]:
    """Fit the numbers of users and interactions on the events that train."""
    numbers = [number for of in (USER, INTERACTION) for number in _numbers(columns, of)]
    if not numbers:
        return {}
    names = [number.name for number in numbers]
    events = read_all(kept / EVENTS, [*names, *(train.columns if train else ())])
    if train is not None:
        events = events.filter(pa.array(train(events)))
    values = {name: _plain(events[name].combine_chunks()) for name in names}
    return fit_numbers(numbers, values)


def _fit_items(columns: BehaviourColumns, values: Mapping[str, pa.Array]) -> dict[str, Learned]:
    """Fit the numbers of items, each item's once."""
    numbers = _numbers(columns, ITEM)
    return fit_numbers(numbers, {number.name: _plain(values[number.name]) for number in numbers})


def _numbers(columns: BehaviourColumns, of: str) -> list[Number]:
    return [f for f in columns.features if isinstance(f, Number) and f.of == of]


def _plain(values: pa.Array) -> npt.NDArray[np.float64]:
    plain: npt.NDArray[np.float64] = np.asarray(values.fill_null(np.nan))
    return plain


def _items_columns(
    columns: BehaviourColumns,
    fitted: FittedNumbers,
    values: Mapping[str, pa.Array],
    vocabularies: Vocabularies,
    occurring: Mapping[str, pa.Array],
) -> dict[str, pa.Array]:
    """What the item table says of items beside ids, as models read it."""
    found: dict[str, pa.Array] = {}
    plain = {number.name: number for number in _numbers(columns, ITEM) if number.stored}
    for name in columns.features.numbers(ITEM):
        numbers = _plain(values[name])
        numbers = fitted.values(plain[name], numbers) if name in plain else numbers
        found[name] = pa.array(numbers.astype(np.float32))
    for vector in columns.features.vectors:
        matrix = matrix_of(values[vector.name], vector.size)
        flat = pa.array(matrix.reshape(-1))
        found[vector.name] = pa.FixedSizeListArray.from_arrays(flat, vector.size)
    for feature in columns.features.lists:
        keys, rows = keys_of_lists(values[feature.name], feature.longest)
        all_keys = keys
        if feature.name in occurring:
            more, _ = keys_of_lists(occurring[feature.name], feature.longest)
            all_keys = pa.concat_arrays([keys, more])
        distinct = vocabularies.add(feature.name, all_keys)
        if not len(distinct):
            raise MerlinSimError(
                f"{feature.name!r}: expected lists of keys, found none: all are empty."
            )
        ids = pc.add(pc.cast(pc.index_in(keys, distinct), pa.int64()), 1)
        counts = np.bincount(rows, minlength=len(values[feature.name]))
        offsets = np.concatenate([[0], np.cumsum(counts)])
        found[feature.name] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ids)
    return found


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
