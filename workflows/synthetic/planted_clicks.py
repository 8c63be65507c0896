"""The clicks that synthetic Criteo logs are made of, so that the best possible model is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError
from ..criteo.criteo_columns import KEYS, MISSING_KEY, NUMBERS
from ..criteo.key_kernels import scatter_all

PUBLISHED_KEYS = (
    *(7912888, 33822, 17138, 7338, 20045, 3, 7104, 1381, 62, 5554113, 582468, 245827, 10),
    *(2208, 10666, 103, 3, 967, 14, 8165895, 2675939, 7156452, 302515, 12021, 96, 34),
)
"""Different keys in each column of the published log that are seen 15 times or more."""
ALPHA = 1.45
"""Keys are drawn with a chance of rank ** -ALPHA, as in the published synthetic data."""
PAIRS = ((0, 1), (2, 10), (4, 14), (6, 22))
"""Columns whose keys say something together."""
LATENT = 4
KNOWN_RANK = 100.0
"""From this rank on a key says less and less: nobody could learn what it says."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PlantedClicks:
    """What decides the clicks of a synthetic log.

    The logit of a click is a sum over keys, over pairs of keys and over numbers. What a key says
    follows from its column and its rank alone, so that it is the same on every day.
    """

    rows_per_day: int
    """Rows of each day."""
    most_keys: int = 100_000
    """Different keys of a column at most; a column of fewer in the published log has those."""
    base: float = -1.5
    """The logit before any key or number."""
    strength: float = 1.0
    """How much keys and numbers say; 0 for clicks by chance."""
    missing: float = 0.05
    """Share of keys and of numbers that are missing."""
    seed: int = 1
    """The same seed gives the same log, byte for byte."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        problems = [
            f"`{name}` should be a positive integer. Received: `{name}` = {getattr(self, name)}."
            for name in ("rows_per_day", "most_keys")
            if getattr(self, name) < 1
        ]
        if not 0 <= self.missing < 1:
            problems.append(
                f"`missing` should be at least 0 and below 1. Received: `missing` = {self.missing}."
            )
        if self.seed < 0 or self.strength < 0:
            problems.append(
                "`seed` and `strength` should be 0 or more. "
                f"Received: {self.seed} and {self.strength}."
            )
        if problems:
            raise MerlinSimError("\n".join(problems))


@dataclass(frozen=True)
class Clicks:
    """Some rows of a day."""

    labels: npt.NDArray[np.int8]
    """[rows]."""
    numbers: npt.NDArray[np.int64]
    """[13, rows]."""
    has_number: npt.NDArray[np.bool_]
    """[13, rows]."""
    keys: npt.NDArray[np.int64]
    """[26, rows]; -1 where there is none."""
    chances: npt.NDArray[np.float64]
    """[rows] The chance of a click that each label was drawn with."""


def draw_clicks(planted: PlantedClicks, day: int, part: int, rows: int) -> Clicks:
    """Draw a part of a day.

    Args:
        planted: What decides the clicks.
        day: The day, from 0.
        part: The part, from 0.
        rows: Its rows.
    """
    random = np.random.default_rng([planted.seed, day, part])
    numbers = np.floor(np.exp(random.normal(1.5, 1.2, (NUMBERS, rows)))).astype(np.int64) - 2
    has_number = random.random((NUMBERS, rows)) >= planted.missing
    ranks = np.stack(
        [draw_ranks(min(most, planted.most_keys), random, rows) for most in PUBLISHED_KEYS]
    )
    has_key = random.random((KEYS, rows)) >= planted.missing
    logits = planted.base + planted.strength * (
        _say_keys(ranks, has_key) + _say_numbers(numbers, has_number)
    )
    chances = 1 / (1 + np.exp(-logits))
    labels = (random.random(rows) < chances).astype(np.int8)
    keys = np.where(has_key, keys_of(ranks), MISSING_KEY)
    return Clicks(labels, numbers, has_number, keys, chances)


def draw_ranks(most: int, random: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
    """Draw ranks 1..most by a power law.

    >>> ranks = draw_ranks(1000, np.random.default_rng(0), 10_000)
    >>> int(ranks.min()), bool(np.mean(ranks == 1) > 0.2), bool(ranks.max() > 500)
    (1, True, True)
    """
    power = 1 - ALPHA
    last = float(most + 1) ** power
    ranks = (random.random(rows) * (last - 1) + 1) ** (1 / power)
    drawn: npt.NDArray[np.int64] = np.minimum(ranks.astype(np.int64), most)
    return drawn


def keys_of(ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Give each rank of each column, [columns, rows], a key of 32 bits."""
    columns = np.arange(len(ranks))[:, np.newaxis]
    return _scattered(ranks * len(ranks) + columns).astype(np.int64)


def _say_keys(ranks: Array, has_key: Array) -> Array:
    weight = has_key / (1 + ranks / KNOWN_RANK)
    said = (weight * _drawn(ranks, 0)).sum(axis=0) * 0.3
    for one, other in PAIRS:
        together = sum(
            _drawn(ranks, 1 + place)[one] * _drawn(ranks, 1 + place)[other]
            for place in range(LATENT)
        )
        said += weight[one] * weight[other] * together
    return np.asarray(said)


def _drawn(ranks: Array, place: int) -> Array:
    """Draw a number between -1 and 1 for each rank of each column, always the same."""
    columns = np.arange(len(ranks))[:, np.newaxis]
    scattered = _scattered((ranks * KEYS + columns) * (LATENT + 1) + place + (1 << 31))
    return np.asarray(scattered / 2.0**31 - 1)


def _scattered(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Scatter each of [columns, rows]."""
    scattered: npt.NDArray[np.uint32] = scatter_all(numbers.ravel()).reshape(numbers.shape)
    return scattered


def _say_numbers(numbers: Array, has_number: Array) -> Array:
    weights = np.linspace(-0.4, 0.4, NUMBERS)[:, np.newaxis]
    return np.asarray((weights * has_number * (np.log(numbers + 3.0) - 1.8)).sum(axis=0))
