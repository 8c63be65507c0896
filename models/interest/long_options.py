"""What can be set of ETA, SDIM and TWIN, with defaults near the papers'."""

from __future__ import annotations

from dataclasses import dataclass

from ..blocks.checks import check_positive, check_switch
from .options import SearchedOptions


@dataclass(frozen=True)
class LongOptions(SearchedOptions):
    """What the three share: without a first stage, the short history read by attention."""

    stage_one: bool = False
    """Whether a first stage is trained beside what is evaluated."""

    short_history: str = "attention"
    """How the short history is read: ``"attention"``, ``"dien"``, or ``"none"``: not at all."""

    heads: int = 4
    """Heads of the attention to what was found, and of that to the short history."""

    def __post_init__(self) -> None:
        """Check every option."""
        super().__post_init__()
        check_positive("heads", self.heads)


@dataclass(frozen=True)
class ETAOptions(LongOptions):
    """What can be set of ETA."""

    top_k: int = 48
    """How many positions of the long history the search keeps at most."""

    hash_bits: int = 64
    """Signs of a position's code; more than twice the length of an item's vector gains nothing."""

    def __post_init__(self) -> None:
        """Check every option."""
        super().__post_init__()
        check_positive("top_k", self.top_k)
        check_positive("hash_bits", self.hash_bits)


@dataclass(frozen=True)
class SDIMOptions(LongOptions):
    """What can be set of SDIM."""

    hashes: int = 32
    """How many hashes a position has."""

    bits_per_hash: int = 4
    """Signs of one hash: the more, the nearer two items are that collide."""

    collision_counts: bool = False
    """Whether the classifier reads how much collides, beside its sum."""

    def __post_init__(self) -> None:
        """Check every option."""
        super().__post_init__()
        check_positive("hashes", self.hashes)
        check_positive("bits_per_hash", self.bits_per_hash)
        check_switch("collision_counts", self.collision_counts)


@dataclass(frozen=True)
class TWINOptions(LongOptions):
    """What can be set of TWIN."""

    top_k: int = 100
    """How many distinct positions of the long history the search keeps at most, over all heads."""

    time_buckets: int = 32
    """Rows of the table of time intervals, where the dataset has them; one for each power of 2."""

    def __post_init__(self) -> None:
        """Check every option."""
        super().__post_init__()
        check_positive("top_k", self.top_k)
        check_positive("time_buckets", self.time_buckets)
