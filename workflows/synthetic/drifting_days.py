"""Days of clicks in a world that changes, so that how fast a model ages can be looked at.

Users are shown items and click by chance:

    logit = bias + taste (category is a favourite of the user's) + quality (item)
            + appeal (category, day)

With each day that passes, a share ``drift`` of the items is replaced by new ones, as is a share of
the users; the others change one of their favourites with that probability; and the appeal of
categories wanders. At a drift of 0 nothing ever changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from .raw_files import check_options, numbered

Array = npt.NDArray[Any]

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

    users: int = 2000
    """At any time."""
    items: int = 1000
    """At any time."""
    categories: int = 50
    shown: int = 10
    """Items that a user is shown in a day."""
    drift: float = 0.05
    """Share of users, items and favourites that change from one day to the next."""
    seed: int = 1
    """The same seed gives the same days, byte for byte."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        least = {"users": 1, "items": 1, "categories": FAVOURITES, "shown": 1, "seed": 0}
        sizes = (
            "`items` should be as many as `categories` or more. "
            f"Received: {self.items} and {self.categories}"
        )
        check_options(self, least, ["drift"], [(self.items >= self.categories, sizes)])


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
    """Of a click; nobody can predict better."""


def draw_days(world: DriftingWorld, days: int) -> Iterator[Day]:
    """Draw days one after the other.

    Args:
        world: What there is.
        days: How many.
    """
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
        if day and world.drift:
            left = random.random(world.users) < world.drift
            users = np.where(left, made[0] + np.cumsum(left) - 1, users)
            fresh = random.integers(0, world.categories, favourites.shape)
            changed = (random.random(world.users) < world.drift)[:, None]
            changed = changed & (np.arange(FAVOURITES) == 0)
            favourites = np.where(left[:, None] | changed, fresh, favourites)
            gone = random.random(world.items) < world.drift
            items = np.where(gone, made[1] + np.cumsum(gone) - 1, items)
            quality = np.where(gone, random.normal(0, QUALITY, world.items), quality)
            made = made + [left.sum(), gone.sum()]
            # Its spread stays: what it keeps of itself and what comes anew add up to one.
            step = random.normal(0, APPEAL, world.categories)
            appeal = np.sqrt(1 - world.drift) * appeal + np.sqrt(world.drift) * step
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
    wanted = favourites[of, random.integers(0, FAVOURITES, rows)]
    by_category = np.argsort(category, kind="stable")
    starts = np.searchsorted(category[by_category], np.arange(world.categories + 1))
    sizes = np.diff(starts)[wanted]
    chosen = by_category[starts[wanted] + (random.random(rows) * sizes).astype(np.int64)]
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
    directory: Path, world: DriftingWorld, days: int, narrator: Narrator | None = None
) -> list[float]:
    """Write ``day_00.csv``, ``day_01.csv`` and so on into an existing directory.

    Each has the columns user, item, category, time (seconds) and clicked, and is a log for
    ``preprocess log --label_column clicked``.

    Args:
        directory: Where to write.
        world: What there is.
        days: How many.
        narrator: Shows progress.

    Returns:
        The share of clicks of each day.

    Raises:
        MerlinSimError: Where there would be no day.
    """
    if days < 1:
        raise MerlinSimError(f"`days` should be a positive integer. Received: {days}")
    digits = max(2, len(str(days - 1)))
    rates = []
    with (narrator or Silence()).phase("writing days", days) as report:
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
