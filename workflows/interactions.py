"""Roles of interactions, places of samples among them, and the order of equal times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class SamplePlaces:
    """Places of samples among the interactions of all histories, and what was before them.

    What was taken is what joins the history.
    """

    places: Any
    """[samples] Their places among all interactions."""
    before: Any
    """[samples] How many interactions before each, of all histories, were taken."""
    positives: Any
    """[samples + 1] How many positive samples stand before each, and before the end."""
    offsets: Any
    """[histories + 1] Where the samples of each history begin."""
    begins: Any
    """[histories + 1] How many were taken before each history."""


def sample_places(roles: Any, offsets: Any, moments: Any = None) -> SamplePlaces:
    """Find the samples of histories, of roles [places] and offsets [histories + 1].

    With ``moments``, [places] when each was, what is of a sample's own time does not count as
    before it; else what stands before it does.

    >>> taken, shown = roles_of_labels(np.array([1, 0]))
    >>> found = sample_places(np.array([JOINS, taken, shown, taken]), np.array([0, 3, 4]))
    >>> found.places.tolist(), found.before.tolist(), found.positives.tolist()
    ([1, 2, 3], [1, 2, 2], [0, 1, 1, 2])
    >>> found.offsets.tolist(), found.begins.tolist()
    ([0, 2, 3], [0, 2, 3])
    """
    is_sample = (roles & SAMPLE) > 0
    places = np.flatnonzero(is_sample)
    taken = counted_before((roles & JOINS) > 0)
    positive = (roles[places] & POSITIVE) > 0
    return SamplePlaces(
        places=places,
        before=taken[places if moments is None else first_of_moments(moments, offsets)[places]],
        positives=counted_before(positive),
        offsets=counted_before(is_sample)[offsets],
        begins=taken[offsets],
    )


def first_of_moments(moments: Any, offsets: Any) -> Any:
    """The place of the first interaction of each one's own time, in its history.

    Places are in the order of time within a history.

    >>> first_of_moments(np.array([3, 3, 5, 5, 5]), np.array([0, 3, 3, 5])).tolist()
    [0, 0, 2, 3, 3]
    """
    begins = np.ones(len(moments), bool)
    begins[1:] = moments[1:] != moments[:-1]
    begins[offsets[:-1][offsets[:-1] < len(moments)]] = True
    return np.flatnonzero(begins)[np.cumsum(begins) - 1]


def counted_before(marks: Any) -> Any:
    """Count, for each place and for the end, the marks before it.

    >>> counted_before(np.array([0, 1, 0, 1])).tolist()
    [0, 0, 1, 1, 2]
    """
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(marks, dtype=np.int64)])


def first_with_enough_taken(samples: SamplePlaces, least_before: int) -> Any:
    """The first sample of each history that has so many taken interactions before it.

    Where a history has none, it is some position at its end or beyond.

    >>> roles = roles_of_labels(np.array([0, 1, 0, 1, 1, 0]))
    >>> first_with_enough_taken(sample_places(roles, np.array([0, 4, 6])), 1).tolist()
    [2, 1]
    """
    return (
        np.searchsorted(samples.before, samples.begins[:-1] + least_before) - samples.offsets[:-1]
    )


def with_roles(table: pa.Table, columns: BehaviourColumns) -> tuple[pa.Table, Counter[str]]:
    """Put roles in the place of behaviours, and count these; leave out rows that play no part."""
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
        return [lambda places: _hashed_order(own.take(pa.array(places)), columns, rules.seed)]
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
