"""Roles of interactions, and the order of those of one time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..foundation.hashing import hash_keys, mix_arrays
from ..schemas.users_layout import JOINS, POSITIVE, SAMPLE
from .behaviour_columns import ROLE, BehaviourColumns, roles_of_labels
from .frames import Keys, keys_of
from .rules import HASH_ORDER, ITEM_ORDER, UNKNOWN_ORDER, SampleRules


def first_of_times(times: Any, offsets: Any) -> Any:
    """The index of the first interaction of each one's own time, in its history.

    Indices are in the order of time within a history.

    >>> first_of_times(np.array([3, 3, 5, 5, 5]), np.array([0, 3, 3, 5])).tolist()
    [0, 0, 2, 3, 3]
    """
    begins = np.ones(len(times), bool)
    begins[1:] = times[1:] != times[:-1]
    begins[offsets[:-1][offsets[:-1] < len(times)]] = True
    return np.flatnonzero(begins)[np.cumsum(begins) - 1]


def with_roles(table: pa.Table, columns: BehaviourColumns) -> tuple[pa.Table, Counter[str]]:
    """Replace behaviours by roles, and count these; leave out rows that play no part."""
    if columns.roles != (ROLE,):
        return table, Counter()
    taken = np.ones(table.num_rows, np.int64)
    if columns.label is not None:
        taken = np.asarray(table[columns.label]).astype(np.int64)
    if columns.behaviour is None:
        roles = roles_of_labels(taken)
        return table.append_column(ROLE, pa.array(roles.astype(np.int8))), Counter()
    behaviours = table[columns.behaviour].combine_chunks()
    joins = _is_one_of(behaviours, columns.history_behaviours) & (taken == 1)
    predicted = _is_one_of(behaviours, columns.target_behaviours)
    roles = joins * JOINS + predicted * (SAMPLE + POSITIVE * taken)
    with_role = table.drop_columns([columns.behaviour])
    with_role = with_role.append_column(ROLE, pa.array(roles.astype(np.int8)))
    counted = pc.value_counts(behaviours).to_pylist()
    found = Counter({entry["values"]: entry["counts"] for entry in counted})
    return with_role.filter(pa.array(roles > 0)), found


def _is_one_of(behaviours: pa.Array, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Whether each is among the names; all are where there are none."""
    if not names:
        return np.ones(len(behaviours), bool)
    marks: npt.NDArray[np.bool_] = np.asarray(pc.is_in(behaviours, pa.array(names, pa.string())))
    return marks


ORDER_BITS = 20
"""Of the hash that orders them; rows whose hashes are equal keep the order of the log."""


def exclude_own_time(columns: BehaviourColumns, rules: SampleRules) -> BehaviourColumns:
    """The columns, and whether a sample's history leaves out what has the sample's own time."""
    return replace(columns, own_time_excluded=rules.equal_times == UNKNOWN_ORDER)


def order_within_times(rows: pa.Table, columns: BehaviourColumns, rules: SampleRules) -> list[Keys]:
    """Keys by which rows of one user and one time are sorted, before their order in the log."""
    if rules.equal_times == ITEM_ORDER:
        return [keys_of(rows[columns.item].combine_chunks())]
    if rules.equal_times in (HASH_ORDER, UNKNOWN_ORDER):
        own = rows.select([columns.user, columns.item, columns.timestamp])
        return [lambda indices: _hashed_order(own.take(pa.array(indices)), columns, rules.seed)]
    return []


def _hashed_order(rows: pa.Table, columns: BehaviourColumns, seed: int) -> pa.Array:
    """A hash of the user, the time, the item and the seed.

    It is the same in every run and on every day. As the time is in it, no two items stand in the
    same order in all baskets.
    """
    users, items = (_hashes(rows[name].combine_chunks()) for name in (columns.user, columns.item))
    times = _same_in_every_unit(rows[columns.timestamp].combine_chunks())
    mixed = mix_arrays(users ^ np.uint64(seed))
    mixed = mix_arrays(mixed ^ times)
    mixed = mix_arrays(mixed ^ items)
    return pa.array((mixed >> np.uint64(64 - ORDER_BITS)).astype(np.int32))


def _hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    encoded = keys.dictionary_encode()
    hashes: npt.NDArray[np.uint64] = hash_keys(encoded.dictionary)[np.asarray(encoded.indices)]
    return hashes


def _same_in_every_unit(times: pa.Array) -> npt.NDArray[np.uint64]:
    """Times as bits that are the same whether they count seconds, milli-, micro- or nanoseconds."""
    if pa.types.is_floating(times.type):
        return np.asarray(times).astype(np.float64).view(np.uint64)
    numbers = np.asarray(pc.cast(times, pa.int64()))
    for _ in range(3):
        numbers = np.where(numbers % 1000 == 0, numbers // 1000, numbers)
    return numbers.view(np.uint64)
