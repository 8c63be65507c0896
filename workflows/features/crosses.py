"""The id of several ids together, the same wherever it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...foundation.hashing import CROSS_SALT, mix_arrays
from .feature import Cross


def cross_ids(cross: Cross, ids: Sequence[Any]) -> Any:
    """Hash ids to 1..buckets; 0 where one of them is 0.

    >>> cross = Cross("where", ("country", "brand"), 1000)
    >>> found = cross_ids(cross, [np.array([1, 1, 2, 0]), np.array([1, 2, 1, 1])])
    >>> len(set(found.tolist())), int(found[3])
    (4, 0)

    Args:
        cross: How many buckets.
        ids: By feature, [rows].
    """
    hashed = np.zeros(len(ids[0]), np.uint64) + np.uint64(CROSS_SALT)
    known = ids[0] > 0
    for column in ids:
        hashed = mix_arrays(hashed ^ column.astype(np.uint64))
        known &= column > 0
    found = (hashed % np.uint64(cross.buckets)).astype(np.int64) + 1
    return np.where(known, found, 0)
