"""The order of a user's interactions that have the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.hashing import hash_keys, mix_arrays
from .behaviour_columns import BehaviourColumns
from .rules import HASH_ORDER, ITEM_ORDER, UNKNOWN_ORDER, SampleRules

ORDER_BITS = 20
"""Of the hash that orders them; rows whose hashes are equal keep the order of the log."""


def exclude_own_time(columns: BehaviourColumns, rules: SampleRules) -> BehaviourColumns:
    """The columns, told whether a sample's history leaves out what has the sample's own time."""
    return replace(columns, own_time_excluded=rules.equal_times == UNKNOWN_ORDER)


def order_within_times(
    rows: pa.Table, columns: BehaviourColumns, rules: SampleRules
) -> list[pa.Array]:
    """Say by what rows of one user and one time are sorted, before their order in the log.

    Args:
        rows: With the user's column, the item's and the timestamp's, raw keys.
        columns: The log's columns.
        rules: Which order is asked for, and the seed.

    Returns:
        Keys to sort by after user and time, [rows] each; none for the order of the log.
    """
    if rules.equal_times == ITEM_ORDER:
        return [rows[columns.item].combine_chunks()]
    return [hashed_order(rows, columns, rules.seed)] if is_hashed(rules) else []


def is_hashed(rules: SampleRules) -> bool:
    """Whether a hash orders the rows of one user and one time."""
    return rules.equal_times in (HASH_ORDER, UNKNOWN_ORDER)


def hashed_order(rows: pa.Table, columns: BehaviourColumns, seed: int) -> pa.Array:
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
