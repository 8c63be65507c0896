"""The behaviour that synthetic logs are made of, so that what a model learns is known."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError

FIRST_DAY = 10_000  # 1997-05-19, in days since 1970
START_DAYS = 4_000  # the days over which users arrive
MEAN_GAP_IN_DAYS = 12.0  # floored to whole days as in the real logs, so a day can repeat
SHORTEST_ACTIVE = 20
POPULARITY = 3.0  # an item's rank in its category is size * uniform ** POPULARITY
USERS_PER_BLOCK = 200_000

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PlantedBehaviour:
    """What users of a synthetic log do.

    Every interaction has one of three reasons. With probability ``long_term`` the user comes
    back to one of a few lifelong interests (categories), each in its turn, so that the last
    visit to the same interest lies about ``interests / long_term`` interactions back. With
    probability ``short_term`` the user follows the interest of the moment, which drifts to
    another category every ``episode_length`` interactions. Otherwise any item is taken. Within
    a category items are taken by popularity.
    """

    users: int
    """Users in the log, the too short ones included."""
    items: int
    """Items in the catalogue; the unpopular ones may never be taken."""
    categories: int
    """Categories in the catalogue."""
    mean_length: float = 60.0
    """Interactions of an active user, on average; never below 20."""
    short_users: float = 0.2
    """Share of users with fewer than 20 interactions, whom preprocessing drops."""
    long_term: float = 0.4
    """Probability that an interaction comes from a lifelong interest."""
    short_term: float = 0.3
    """Probability that an interaction comes from the interest of the moment."""
    interests: int = 10
    """Lifelong interests of a user."""
    episode_length: float = 8.0
    """Interactions until the interest of the moment drifts, on average."""
    duplicates: float = 0.001
    """Share of interactions that the log holds twice."""
    seed: int = 12345
    """The same seed gives the same log, byte for byte."""

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        problems = [
            f"`{name}` should be a positive integer. Received: `{name}` = {getattr(self, name)}."
            for name in ("users", "items", "categories", "interests")
            if getattr(self, name) < 1
        ]
        problems += [
            f"`{field.name}` should lie between 0 and 1. "
            f"Received: `{field.name}` = {getattr(self, field.name)}."
            for field in fields(self)
            if field.name in ("short_users", "long_term", "short_term", "duplicates")
            and not 0 <= getattr(self, field.name) <= 1
        ]
        if self.long_term + self.short_term > 1:
            problems.append(
                "`long_term` + `short_term` should be at most 1, the rest is noise. "
                f"Received: {self.long_term} + {self.short_term}."
            )
        if self.mean_length < SHORTEST_ACTIVE:
            problems.append(
                f"`mean_length` should be at least {SHORTEST_ACTIVE}. "
                f"Received: `mean_length` = {self.mean_length}."
            )
        if self.episode_length < 1:
            problems.append(
                "`episode_length` should be at least 1. "
                f"Received: `episode_length` = {self.episode_length}."
            )
        if self.items < self.categories:
            problems.append(
                "`items` should be at least `categories`. "
                f"Received: `items` = {self.items}, `categories` = {self.categories}."
            )
        if problems:
            raise MerlinSimError("\n".join(problems))


@dataclass(frozen=True)
class Interactions:
    """A log as arrays, one entry per interaction."""

    user: Int32Array
    item: Int32Array
    day: Int32Array

    def __len__(self) -> int:
        """The number of interactions."""
        return len(self.user)


def category_starts(items: int, categories: int) -> npt.NDArray[np.int64]:
    """The first item of each category, and the number of items at the end: items lie in order.

    >>> category_starts(7, 3).tolist()
    [0, 2, 4, 7]
    """
    return np.arange(categories + 1, dtype=np.int64) * items // categories


def plant_interactions(behaviour: PlantedBehaviour) -> Interactions:
    """Draw the whole log, sorted by item as the published one is."""
    blocks = [
        _plant_block(behaviour, block, first, min(first + USERS_PER_BLOCK, behaviour.users))
        for block, first in enumerate(range(0, behaviour.users, USERS_PER_BLOCK))
    ]
    user = np.concatenate([block.user for block in blocks])
    item = np.concatenate([block.item for block in blocks])
    day = np.concatenate([block.day for block in blocks])
    order = np.argsort(item, kind="stable")
    return Interactions(user[order], item[order], day[order])


def _plant_block(
    behaviour: PlantedBehaviour, block: int, first_user: int, last_user: int
) -> Interactions:
    rng = np.random.default_rng([behaviour.seed, block])
    lengths = _draw_lengths(behaviour, rng, last_user - first_user)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    user = np.repeat(np.arange(last_user - first_user, dtype=np.int32), lengths)
    category = _draw_categories(behaviour, rng, user, starts)
    bounds = category_starts(behaviour.items, behaviour.categories)
    size = bounds[category + 1] - bounds[category]
    rank = (size * rng.random(len(user)) ** POPULARITY).astype(np.int64)
    day = _draw_days(rng, user, starts)
    interactions = Interactions(
        user + np.int32(first_user), (bounds[category] + rank).astype(np.int32), day
    )
    return _repeat_some(interactions, behaviour.duplicates, rng)


def _draw_lengths(
    behaviour: PlantedBehaviour, rng: np.random.Generator, users: int
) -> npt.NDArray[np.int64]:
    beyond = rng.exponential(behaviour.mean_length - SHORTEST_ACTIVE + 1e-9, users)
    active = SHORTEST_ACTIVE + np.rint(beyond).astype(np.int64)
    too_short = np.minimum(rng.geometric(0.47, users), SHORTEST_ACTIVE - 1)
    return np.where(rng.random(users) < behaviour.short_users, too_short, active)


def _draw_categories(
    behaviour: PlantedBehaviour,
    rng: np.random.Generator,
    user: Int32Array,
    starts: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    count = len(user)
    reason = rng.random(count)
    is_long = reason < behaviour.long_term
    is_short = ~is_long & (reason < behaviour.long_term + behaviour.short_term)

    # Lifelong interests take their turns: the n-th return of a user goes to interest n mod K.
    interests = rng.integers(
        0, behaviour.categories, (len(starts), behaviour.interests), dtype=np.int32
    )
    taken = np.cumsum(is_long, dtype=np.int64)
    before_user = taken[starts] - is_long[starts].astype(np.int64)
    lifelong = interests[user, (taken - before_user[user]) % behaviour.interests]

    # The interest of the moment: a new episode begins with a user, then now and then.
    drifts = rng.random(count) < 1.0 / behaviour.episode_length
    drifts[starts] = True
    episode = np.cumsum(drifts) - 1
    momentary = rng.integers(0, behaviour.categories, int(drifts.sum()), dtype=np.int32)[episode]

    anything = rng.integers(0, behaviour.categories, count, dtype=np.int32)
    return np.where(is_long, lifelong, np.where(is_short, momentary, anything)).astype(np.int64)


def _draw_days(
    rng: np.random.Generator, user: Int32Array, starts: npt.NDArray[np.int64]
) -> Int32Array:
    gaps = np.floor(rng.exponential(MEAN_GAP_IN_DAYS, len(user))).astype(np.int64)
    arrival = FIRST_DAY + rng.integers(0, START_DAYS, len(starts))
    elapsed = np.cumsum(gaps)
    day: Int32Array = (arrival[user] + elapsed - elapsed[starts][user]).astype(np.int32)
    return day


def _repeat_some(
    interactions: Interactions, share: float, rng: np.random.Generator
) -> Interactions:
    times = 1 + (rng.random(len(interactions)) < share)
    return Interactions(
        np.repeat(interactions.user, times),
        np.repeat(interactions.item, times),
        np.repeat(interactions.day, times),
    )
