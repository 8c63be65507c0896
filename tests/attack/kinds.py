"""A kind of change: how it is drawn, how it is made, how often it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .plan import Mutation

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class MutationKind:
    """One kind of change."""

    name: str
    change: Callable[..., None]
    """Takes what is changed, and the arguments that were drawn."""

    draw: Callable[[np.random.Generator], dict[str, Any]]
    """Draws the arguments: plain data, and such that they fit a smaller input too."""

    weight: float = 1.0

    def drawn(self, random: np.random.Generator) -> Mutation:
        return Mutation(self.name, self.draw(random))


def pick(random: np.random.Generator, choices: Sequence[Choice]) -> Choice:
    """Choose one of them."""
    return choices[int(random.integers(len(choices)))]


def pick_kind(random: np.random.Generator, kinds: Sequence[MutationKind]) -> MutationKind:
    """Choose one of them by weight."""
    weights = np.array([kind.weight for kind in kinds])
    return kinds[int(random.choice(len(kinds), p=weights / weights.sum()))]
