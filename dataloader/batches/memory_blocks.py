"""Large blocks of memory that are used again once nothing refers to them."""

from __future__ import annotations

import weakref

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[np.uint8]

KEPT = 3
"""Blocks kept for another time: of a window that is filled, one that is read, and one between."""


class MemoryBlocks:
    """Hands out blocks; what the system gives anew must be emptied first, which takes time.

    Each time a block is handed out as a new array, which every array made of it, and so every
    tensor made without a copy, refers to. When that array is gone the block is free.

    >>> blocks = MemoryBlocks()
    >>> part = blocks.take(10)[2:4]
    >>> np.shares_memory(part, blocks.take(8))  # in use
    False
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._blocks: list[tuple[memoryview, weakref.ref[Block]]] = []

    def take(self, size: int) -> Block:
        """Return a free block of at least ``size`` bytes, whatever they hold."""
        for place, (memory, array) in enumerate(self._blocks):
            if len(memory) >= size and array() is None:
                return self._hand_out(memory, place)
        self._blocks = [entry for entry in self._blocks if entry[1]() is not None][1 - KEPT :]
        return self._hand_out(np.empty(size, np.uint8).data, len(self._blocks))

    def _hand_out(self, memory: memoryview, place: int) -> Block:
        array: Block = np.asarray(memory)
        self._blocks[place : place + 1] = [(memory, weakref.ref(array))]
        return array
