"""Which process of a run this is."""

from __future__ import annotations

from dataclasses import dataclass

from .exceptions import MerlinSimError


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and speaks."""
        return self.rank == 0


def rank_batch_size(global_batch_size: int, ranks: Ranks) -> int:
    """Divide the global batch; refuse a size that the ranks cannot share equally."""
    if global_batch_size % ranks.size:
        raise MerlinSimError(
            f"`global_batch_size` should be divisible by the number of ranks ({ranks.size})."
            f" Received: {global_batch_size}"
        )
    return global_batch_size // ranks.size
