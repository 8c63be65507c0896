"""Which item a sample draws, worked out number by number: what all draws have to meet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

BITS = (1 << 64) - 1


def mix(value: int) -> int:
    """Scatter 64 bits, as SplitMix64's finalizer does."""
    value = (value + 0x9E3779B97F4A7C15) & BITS
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS
    return value ^ (value >> 31)


def key_of(seed: int, user: int, position: int, label: int, negative: int = 0) -> int:
    """The number of a sample: of a positive, or of one of its negatives."""
    key = mix(mix(mix(int(seed) & BITS) ^ int(user)) ^ (2 * int(position) + int(label)))
    return mix(key ^ (0x7713 + int(negative))) if negative else key


def drawn(key: int, number: int, counts: Sequence[int]) -> int:
    """The item of a draw; ``counts`` says by id how often each is among all draws."""
    cumulative = [int(count) for count in accumulate(counts)]
    unit = (mix((key + number * 0x9E3779B97F4A7C15) & BITS) >> 11) * 2.0**-53
    index = int(unit * cumulative[-1])
    return next(item for item, end in enumerate(cumulative) if end > index)
