"""The order of a part's samples: stretches of a user's positions, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .kernels import cut_by_reach, expand
from .user_block import Array, UserBlock


@dataclass(frozen=True)
class Stretches:
    """All samples of some users, in the order in which an epoch goes through them."""

    block: UserBlock
    rows: Array
    """[stretches] Whose each stretch is."""
    begins: Array
    """[stretches] Its first position."""
    counts: Array
    """[stretches] How many positions it has."""
    starts: Array
    """[stretches + 1] How many positions stand before each in this order."""
    of_position: int
    """How many samples a position has."""

    @classmethod
    def of(
        cls,
        block: UserBlock,
        longest: int,
        of_position: int,
        random: np.random.Generator | None = None,
        by_reach: bool = False,
    ) -> Stretches:
        """Cut the users' samples into stretches of at most ``longest`` positions.

        Args:
            block: The users.
            longest: Positions that stay together.
            of_position: Samples of each.
            random: Puts the stretches into its order; None leaves them in the users'.
            by_reach: Cut where samples would see more than ``longest`` - 1 interactions beyond
                what the first one sees, too: one row of a batch holds what a stretch sees.
        """
        if by_reach and block.same_time is not None:
            rows, begins, lengths = cut_by_reach(
                block.begins, block.ends, block.starts, block.same_time, longest
            )
        else:
            counts = block.ends - block.begins
            pieces = stretches_of(counts, longest)
            rows = np.repeat(np.arange(len(counts)), pieces)
            number = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
            begins = block.begins[rows] + number * longest
            lengths = np.minimum(block.ends[rows] - begins, longest)
        if random is not None:
            order = random.permutation(len(rows))
            rows, begins, lengths = rows[order], begins[order], lengths[order]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return cls(block, rows, begins, lengths, starts, of_position)

    def samples(self, first: int, stop: int) -> tuple[Array, Array, Array, Array]:
        """Whose the samples ``first`` to ``stop`` are, their positions, labels and twins."""
        found: tuple[Array, Array, Array, Array] = expand(
            self.starts, self.rows, self.begins, self.of_position, first, stop
        )
        return found


def stretches_of(counts: Array, longest: int) -> Array:
    """How many stretches users with so many samples have.

    >>> stretches_of(np.array([0, 1, 4, 5]), 4).tolist()
    [0, 1, 1, 2]
    """
    pieces: Array = -(-counts // longest)
    return pieces
