"""Large blocks of memory that are used again once nothing refers to them."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[np.uint8]

KEPT = 3
"""Blocks kept for another time: of a window that is filled, one that is read, and one between."""
UNUSED = 3
"""References to a block that nobody has: the list's, the loop's, and the question's own."""


class MemoryBlocks:
    """Hands out blocks; what the system gives anew must be emptied first, which takes time.

    A block is free when no array, and so no tensor made from one without a copy, shows a part of
    it any more. Arrays count: each refers to the block that owns its memory.

    >>> blocks = MemoryBlocks()
    >>> part = blocks.take(10)[2:4]
    >>> blocks.take(8) is part.base  # in use
    False
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._blocks: list[Block] = []

    def take(self, size: int) -> Block:
        """Return a free block of at least ``size`` bytes, whatever they hold."""
        for block in self._blocks:
            if block.size >= size and sys.getrefcount(block) == UNUSED:
                return block
        self._blocks = [block for block in self._blocks if sys.getrefcount(block) > UNUSED]
        new = np.empty(size, np.uint8)
        self._blocks = [*self._blocks, new][-KEPT:]
        return new
