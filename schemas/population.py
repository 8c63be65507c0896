"""All interactions as a population to draw items from: an item as often as it was taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BITS = 18


@dataclass(frozen=True)
class Population:
    """Draws index by index what ``numpy.repeat(ids, counts)[index]`` would give.

    The repeated array would be as long as the log. This needs one number per item and a short
    table of where to begin to search.

    >>> population = Population.of_counts(np.array([0, 2, 0, 3]))  # ids 0, 1, 2, 3
    >>> population.size, population.at(np.arange(5), np).tolist()
    (5, [1, 1, 3, 3, 3])
    """

    cumulative: npt.NDArray[np.int64]
    """Interactions with items up to and including an id."""
    first: npt.NDArray[np.int64]
    """The id in which each block of ``block`` interactions begins."""
    block: int
    """Interactions per entry of ``first``."""

    @classmethod
    def of_counts(cls, counts: npt.NDArray[np.int64]) -> Population:
        """Prepare the draws; ``counts[id]`` is how often item ``id`` was taken."""
        cumulative = np.cumsum(counts, dtype=np.int64)
        block = max(1, int(cumulative[-1]) >> BITS)
        begins = np.arange(0, int(cumulative[-1]) + block, block, dtype=np.int64)
        return cls(cumulative, np.searchsorted(cumulative, begins, side="right"), block)

    @property
    def size(self) -> int:
        """The number of interactions."""
        return int(self.cumulative[-1])

    def at(self, index: npt.NDArray[np.int64], xp: object) -> npt.NDArray[np.int64]:
        """The item of each interaction, for arrays of numpy or cupy."""
        cumulative = xp.asarray(self.cumulative)  # type: ignore[attr-defined]
        items: npt.NDArray[np.int64] = xp.searchsorted(  # type: ignore[attr-defined]
            cumulative, index, side="right"
        )
        return items
