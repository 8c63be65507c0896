"""What can be set of the two towers, checked at construction."""

from __future__ import annotations

from dataclasses import dataclass

from ..blocks.checks import OptionError, check_dims, check_positive
from ..checked_options import CheckedOptions


@dataclass(frozen=True)
class TwoTowerOptions(CheckedOptions):
    """What can be set of the two towers."""

    embedding_dim: int = 16
    """Length of the vector of one feature."""

    tower_dim: int = 64
    """Length of a user's and of an item's vector, which the index holds."""

    tower_mlp_dims: tuple[int, ...] = (128,)
    """Hidden sizes of each tower; none for a single matrix."""

    history_weightings: int = 4
    """How many weighted means of the history the user's tower reads, each with a learned weight
    for every place."""

    temperature: float = 0.07
    """What the cosine of two vectors is divided by before the softmax."""

    def __post_init__(self) -> None:
        """Check every option."""
        for name in ("embedding_dim", "tower_dim", "history_weightings"):
            check_positive(name, getattr(self, name))
        dims = check_dims("tower_mlp_dims", self.tower_mlp_dims)
        object.__setattr__(self, "tower_mlp_dims", dims)
        temperature = self.temperature
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        if not is_number or not 0 < temperature <= 100:
            raise OptionError(
                "`temperature` should be above 0 and at most 100. "
                f"Received: `temperature` = {temperature!r}."
            )

    def widths(self, features: list[str]) -> list[int]:
        """Return the length of each feature's vector."""
        return [self.embedding_dim] * len(features)
