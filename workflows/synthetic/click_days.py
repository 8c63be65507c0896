"""Days of clicks whose chances are known: Criteo's day files, and a world that changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter, Silence
from ...foundation.settings import require_settings, setting
from ..criteo.criteo_columns import KEYS, MISSING_KEY, NUMBERS, key_texts
from .raw_files import draw_ranks, numbered, open_raw, write_lines

PUBLISHED_KEYS = (
    *(7912888, 33822, 17138, 7338, 20045, 3, 7104, 1381, 62, 5554113, 582468, 245827, 10),
    *(2208, 10666, 103, 3, 967, 14, 8165895, 2675939, 7156452, 302515, 12021, 96, 34),
)
"""Different keys in each column of the published log that are seen 15 times or more."""
PAIRS = ((0, 1), (2, 10), (4, 14), (6, 22))
"""Columns whose keys say something together."""
LATENT = 4
KNOWN_RANK = 100.0
"""From this rank on a key says less and less: too little to be learned."""
ROWS_PER_WRITE = 100_000

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PlantedClicks:
    """Settings that decide the clicks of a synthetic log.

    The logit of a click is a sum over keys, over pairs of keys and over numbers. What a key says
    follows from its column and its rank alone, so that it is the same on every day.
    """

    rows_per_day: int = setting(20_000, "Rows of each.", at_least=1)
    most_keys: int = setting(100_000, "Different keys of a column at most.", at_least=1)
    """A column of fewer in the published log has those."""
    base: float = -1.5
    """The logit before any key or number."""
    strength: float = setting(
        1.0,
        "Strength with which keys and numbers predict a click; 0: clicks by chance.",
        at_least=0,
    )
    missing: float = setting(0.05, "Share of keys and numbers left out.", at_least=0)
    seed: int = setting(1, "Same seed, same bytes.", at_least=0)

    def __post_init__(self) -> None:
        below = f"`missing` should be below 1. Received: {self.missing}"
        require_settings(self, [] if self.missing < 1 else [below])


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


def synthesize_days(
    directory: Path,
    planted: PlantedClicks,
    days: int,
    *,
    compress: bool = False,
    reporter: Reporter | None = None,
) -> int:
    """Write ``day_0``, ``day_1`` and so on into an existing directory; count the clicked rows."""
    if days < 1:
        raise MerlinSimError(f"`days` should be a positive integer. Received: `days` = {days}.")
    clicked = 0
    reporter = reporter or Silence()
    with reporter.phase("writing days", days * planted.rows_per_day) as report:
        for day in range(days):
            with open_raw(directory / f"day_{day}", compress) as file:
                for clicks in clicks_of_day(planted, day):
                    write_lines(file, [_lines_of(clicks), "\n"])
                    clicked += int(clicks.labels.sum())
                    report(len(clicks.labels), len(clicks.labels))
    return clicked


def clicks_of_day(planted: PlantedClicks, day: int) -> Iterator[Clicks]:
    """Draw a day in parts, in the order of its rows."""
    for part, first in enumerate(range(0, planted.rows_per_day, ROWS_PER_WRITE)):
        rows = min(ROWS_PER_WRITE, planted.rows_per_day - first)
        yield _draw_clicks(planted, np.random.default_rng([planted.seed, day, part]), rows)


def _lines_of(clicks: Clicks) -> pa.Array:
    """Make lines: label, 13 numbers, 26 keys; nothing between tabs for a missing one."""
    columns = [pc.cast(pa.array(clicks.labels), pa.string())]
    for numbers, present in zip(clicks.numbers, clicks.has_number, strict=True):
        columns.append(pc.cast(pa.array(numbers, mask=~present), pa.string()))
    for keys in clicks.keys:
        texts = key_texts(keys.astype(np.uint32))
        columns.append(pc.if_else(pa.array(keys >= 0), texts, pa.scalar(None, pa.string())))
    options = {"null_handling": "replace", "null_replacement": ""}
    return pc.binary_join_element_wise(*columns, "\t", **options)


def _draw_clicks(planted: PlantedClicks, random: np.random.Generator, rows: int) -> Clicks:
    numbers = np.floor(np.exp(random.normal(1.5, 1.2, (NUMBERS, rows)))).astype(np.int64) - 2
    has_number = random.random((NUMBERS, rows)) >= planted.missing
    sizes = [min(most, planted.most_keys) for most in PUBLISHED_KEYS]
    ranks = np.stack([draw_ranks(size, random, rows) for size in sizes])
    has_key = random.random((KEYS, rows)) >= planted.missing
    logits = planted.base + planted.strength * (
        _logits_of_keys(ranks, has_key) + _logits_of_numbers(numbers, has_number)
    )
    chances = 1 / (1 + np.exp(-logits))
    labels = (random.random(rows) < chances).astype(np.int8)
    columns = np.arange(KEYS)[:, np.newaxis]
    keys = np.where(has_key, _scattered(ranks * KEYS + columns).astype(np.int64), MISSING_KEY)
    return Clicks(labels, numbers, has_number, keys, chances)


def _logits_of_keys(ranks: Array, has_key: Array) -> Array:
    weight = has_key / (1 + ranks / KNOWN_RANK)
    logits: Array = (weight * _drawn(ranks, 0)).sum(axis=0) * 0.3
    vectors = [_drawn(ranks, 1 + number) for number in range(LATENT)]
    for one, other in PAIRS:
        together = sum(vector[one] * vector[other] for vector in vectors)
        logits += weight[one] * weight[other] * together
    return logits


def _logits_of_numbers(numbers: Array, has_number: Array) -> Array:
    weights = np.linspace(-0.4, 0.4, NUMBERS)[:, np.newaxis]
    logits: Array = (weights * has_number * (np.log(numbers + 3.0) - 1.8)).sum(axis=0)
    return logits


def _drawn(ranks: Array, number: int) -> Array:
    """Draw a number between -1 and 1 for each rank of each column, always the same."""
    columns = np.arange(KEYS)[:, np.newaxis]
    scattered = _scattered((ranks * KEYS + columns) * (LATENT + 1) + number + (1 << 31))
    drawn: Array = scattered / 2.0**31 - 1
    return drawn


def _scattered(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Scatter each of [columns, rows]: a key of 32 bits of its own."""
    from ...foundation.hashing import mix_32_arrays  # and numba, which the options do without

    return mix_32_arrays(numbers.astype(np.uint32))


SECONDS = 86_400
BIAS, TASTE = -2.0, 2.5
QUALITY, APPEAL = 0.8, 0.6
"""Standard deviations over items, and over categories."""
FAVOURITES = 3
OF_TASTE = 0.4
"""Share of what a user is shown that is of a favourite category."""


@dataclass(frozen=True)
class DriftingWorld:
    """Who there is, and how fast it changes."""

    users: int = setting(2000, "Users at any time.", at_least=1)
    items: int = setting(1000, "Items at any time.", at_least=1)
    categories: int = setting(50, "Categories of items.", at_least=FAVOURITES)
    shown: int = setting(10, "Items that a user sees in a day.", at_least=1)
    turnover: float = setting(
        0.05,
        "Share of users, items and favourites that change from day to day; 0: nothing does.",
        at_least=0,
        at_most=1,
    )
    seed: int = setting(1, "Same seed, same bytes.", at_least=0)

    def __post_init__(self) -> None:
        sizes = (
            "`items` should be as many as `categories` or more. "
            f"Received: {self.items} and {self.categories}"
        )
        require_settings(self, [] if self.items >= self.categories else [sizes])


class Day(NamedTuple):
    """The rows of a day, in the order of their times."""

    user: Array
    """Numbers, that of a user who left is not given again."""
    item: Array
    category: Array
    seconds: Array
    """Since the first day began."""
    clicked: Array
    chance: Array
    """Of a click; the best possible prediction."""


def draw_days(world: DriftingWorld, days: int) -> Iterator[Day]:
    """Draw days one after the other."""
    random = np.random.default_rng(world.seed)
    users = np.arange(world.users)
    favourites = random.integers(0, world.categories, (world.users, FAVOURITES))
    items = np.arange(world.items)
    # Each category has an item from the first day on.
    category = random.permutation(np.arange(world.items) % world.categories)
    quality = random.normal(0, QUALITY, world.items)
    appeal = random.normal(0, APPEAL, world.categories)
    made = np.array([world.users, world.items])
    for day in range(days):
        if day and world.turnover:
            left = random.random(world.users) < world.turnover
            users = np.where(left, made[0] + np.cumsum(left) - 1, users)
            fresh = random.integers(0, world.categories, favourites.shape)
            changed = (random.random(world.users) < world.turnover)[:, None]
            changed = changed & (np.arange(FAVOURITES) == 0)
            favourites = np.where(left[:, None] | changed, fresh, favourites)
            gone = random.random(world.items) < world.turnover
            items = np.where(gone, made[1] + np.cumsum(gone) - 1, items)
            quality = np.where(gone, random.normal(0, QUALITY, world.items), quality)
            made = made + [left.sum(), gone.sum()]
            # Its spread stays: what it keeps of itself and what comes anew add up to one.
            step = random.normal(0, APPEAL, world.categories)
            appeal = np.sqrt(1 - world.turnover) * appeal + np.sqrt(world.turnover) * step
        yield _draw_day(random, world, day, (users, favourites), (items, category, quality), appeal)


def _draw_day(
    random: np.random.Generator,
    world: DriftingWorld,
    day: int,
    who: tuple[Array, Array],
    what: tuple[Array, Array, Array],
    appeal: Array,
) -> Day:
    (users, favourites), (items, category, quality) = who, what
    rows = world.users * world.shown
    of = np.repeat(np.arange(world.users), world.shown)
    categories = favourites[of, random.integers(0, FAVOURITES, rows)]
    by_category = np.argsort(category, kind="stable")
    starts = np.searchsorted(category[by_category], np.arange(world.categories + 1))
    sizes = np.diff(starts)[categories]
    chosen = by_category[starts[categories] + (random.random(rows) * sizes).astype(np.int64)]
    item = np.where(random.random(rows) < OF_TASTE, chosen, random.integers(0, world.items, rows))
    is_taste = (favourites[of] == category[item][:, None]).any(axis=1)
    logit = BIAS + TASTE * is_taste + quality[item] + appeal[category[item]]
    chance = 1 / (1 + np.exp(-logit))
    clicked = random.random(rows) < chance
    seconds = day * SECONDS + random.integers(0, SECONDS, rows)
    order = np.argsort(seconds, kind="stable")
    columns = (users[of], items[item], category[item], seconds, clicked, chance)
    return Day(*(column[order] for column in columns))


def write_days(
    directory: Path, world: DriftingWorld, days: int, reporter: Reporter | None = None
) -> list[float]:
    """Write ``day_00.csv``, ``day_01.csv`` and so on; gives the share of clicks of each day.

    Each has the columns user, item, category, time (seconds) and clicked, and is a log for
    ``preprocess log --label_column clicked``.
    """
    if days < 1:
        raise MerlinSimError(f"`days` should be a positive integer. Received: {days}")
    digits = max(2, len(str(days - 1)))
    rates = []
    with (reporter or Silence()).phase("writing days", days) as report:
        for number, day in enumerate(draw_days(world, days)):
            columns = {
                "user": numbered("u", day.user),
                "item": numbered("i", day.item),
                "category": numbered("c", day.category),
                "time": day.seconds,
                "clicked": day.clicked.astype(np.int8),
            }
            pa_csv.write_csv(pa.table(columns), directory / f"day_{number:0{digits}}.csv")
            rates.append(float(day.clicked.mean()))
            report(1, len(day.user))
    return rates
