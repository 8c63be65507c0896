"""The id of several ids together, the same wherever it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...foundation.hashing import mix_arrays
from .feature import Cross

SALT = 0xC205


def cross_ids(cross: Cross, ids: Sequence[Any], xp: Any) -> Any:
    """Hash ids to 1..buckets; 0 where one of them is 0.

    >>> import numpy as np
    >>> cross = Cross("where", ("country", "brand"), 1000)
    >>> found = cross_ids(cross, [np.array([1, 1, 2, 0]), np.array([1, 2, 1, 1])], np)
    >>> len(set(found.tolist())), int(found[3])
    (4, 0)

    Args:
        cross: How many buckets.
        ids: By feature, [rows].
        xp: numpy or cupy.
    """
    hashed = xp.zeros(len(ids[0]), xp.uint64) + xp.uint64(SALT)
    known = ids[0] > 0
    for column in ids:
        hashed = mix_arrays(hashed ^ column.astype(xp.uint64), xp)
        known &= column > 0
    found = (hashed % xp.uint64(cross.buckets)).astype(xp.int64) + 1
    return xp.where(known, found, 0)
