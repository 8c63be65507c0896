"""The users of one row group, decoded and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
