"""The users of one row group, decoded and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class UserBlock:
    """Histories of some users, one after the other, and which positions of them are samples."""

    users: dict[str, Array]
    """[users] By user feature, its ids; the first tells users apart."""
    items: Array
    """[interactions] All histories' items."""
    starts: Array
    """[users + 1] Where each history begins among them."""
    begins: Array
    """[users] The first position that is a sample."""
    ends: Array
    """[users] The position after the last one."""
    times: Array | None = None
    """[interactions] When each was, in seconds; None where nobody asks."""
    own: Array | None = None
    """[interactions] Each history's items, ascending; None where negatives may be among them."""
    same_time: Array | None = None
    """[interactions] How many of those before each have its own time, and are not seen by it; None
    where all that stands before a sample is seen."""

    def seen(self, rows: Array, positions: Array) -> Array:
        """How many interactions, from the first on, the sample at each position sees."""
        if self.same_time is None:
            return positions
        seen: Array = positions - self.same_time[self.starts[rows] + positions]
        return seen

    def own_of(self, rows: Array) -> tuple[Array, Array, Array]:
        """What must not be drawn for some users: items, and from where to where they are each's."""
        if self.own is None:
            nowhere = np.zeros(len(rows), np.int64)
            return self.items, nowhere, nowhere
        return self.own, self.starts[rows], self.starts[rows + 1]
