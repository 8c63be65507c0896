"""The rules by which a log becomes samples, as the published preprocessing has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...schemas.users_layout import NEGATIVES, POPULARITY


@dataclass(frozen=True)
class SampleRules:
    """Which users are kept, what a sample holds, and the seed of the draws."""

    max_sequence_length: int = 100
    """Interactions of a history that a sample keeps, the newest."""
    shortest_sequence_for_user: int = 20
    """Users with fewer interactions are dropped."""
    shortest_sequence_for_training: int = 1
    """Interactions that a training sample has before it, at least."""
    seed: int = 12345
    """Decides the negatives and the order of rows."""
    pad: bool = False
    """Write histories left-padded with 0 to max_sequence_length, as published."""
    negatives: str = POPULARITY
    """Draw negatives by popularity, or each item as often as any other (uniform)."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        least = {
            "max_sequence_length": 1,
            "shortest_sequence_for_user": 1,
            "shortest_sequence_for_training": 0,
        }
        problems = [
            f"`{name}` should be at least {value}. Received: `{name}` = {getattr(self, name)}."
            for name, value in least.items()
            if getattr(self, name) < value
        ]
        if not 0 <= self.seed < 2**63:
            problems.append(f"`seed` should lie in 0..2**63 - 1. Received: `seed` = {self.seed}.")
        if self.negatives not in NEGATIVES:
            problems.append(
                f"`negatives` should be {' or '.join(NEGATIVES)}. "
                f"Received: `negatives` = {self.negatives!r}."
            )
        if problems:
            raise MerlinSimError("\n".join(problems))

    def to_dict(self) -> dict[str, Any]:
        """The rules as JSON holds them."""
        return asdict(self)
