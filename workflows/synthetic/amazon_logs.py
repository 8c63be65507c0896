"""Raw files in the layout of the Amazon Books 2014 logs, whose users behave in a known way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...foundation.settings import require_settings, setting
from .raw_files import Integers, numbered, open_raw, write_lines

REVIEWS_FILE = "reviews_Books.json"
METADATA_FILE = "meta_Books.json"
ROWS_PER_WRITE = 1_000_000
USERS_PER_BLOCK = 200_000
SECONDS_PER_DAY = 86_400
FIRST_DAY = 10_000  # 1997-05-19, in days since 1970
START_DAYS = 4_000  # the days over which users arrive
MEAN_GAP_IN_DAYS = 12.0  # floored to whole days as in the real logs, so a day can repeat
SHORTEST_ACTIVE = 20
POPULARITY = 3.0  # an item's rank in its category is size * uniform ** POPULARITY
WORDS = "a slow and tender book about the sea which I have read twice and lent to my sister. "
SUBJECTS = ("History", "Fiction", "Travel", "Poetry", "Cooking", "Science", "Children's Books")

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class PlantedBehaviour:
    """Behaviour of the users of a synthetic log.

    Every interaction has one of three reasons. With probability ``long_term`` the user comes
    back to one of a few lifelong interests (categories), each in its turn, so that the last
    visit to the same interest lies about ``interests / long_term`` interactions back. With
    probability ``short_term`` the user follows the interest of the moment, which drifts to
    another category every ``episode_length`` interactions. Otherwise any item is taken. Within
    a category items are taken by popularity.
    """

    items: int
    """Items in the catalogue; the unpopular ones may never be taken."""
    categories: int
    """Categories in the catalogue."""
    users: int = setting(2_000, "Users, short ones included.", at_least=1)
    mean_length: float = setting(60.0, "Interactions per active user.", at_least=SHORTEST_ACTIVE)
    short_users: float = setting(0.2, "Share of users below 20.", at_least=0, at_most=1)
    long_term: float = setting(
        0.4,
        "Probability that an interaction returns to a lifelong interest: the part of the "
        "behaviour that only a model of the long history can see.",
        at_least=0,
        at_most=1,
    )
    short_term: float = setting(
        0.3,
        "Probability that an interaction follows the drifting interest of the moment. "
        "What is left of 1 is noise.",
        at_least=0,
        at_most=1,
    )
    interests: int = setting(10, "Lifelong interests per user.", at_least=1)
    episode_length: float = setting(8.0, "Interactions until drift.", at_least=1)
    duplicates: float = setting(0.001, "Share written twice.", at_least=0, at_most=1)
    seed: int = setting(12345, "Same seed, same bytes.", at_least=0)

    def __post_init__(self) -> None:
        problems = []
        if self.long_term + self.short_term > 1:
            problems.append(
                "`long_term` + `short_term` should be at most 1, the rest is noise. "
                f"Received: {self.long_term} + {self.short_term}"
            )
        if self.categories < 1:
            problems.append(
                f"`categories` should be a positive integer. Received: {self.categories}"
            )
        elif self.items < self.categories:
            problems.append(
                "`items` should be as many as `categories` or more. "
                f"Received: {self.items} and {self.categories}"
            )
        require_settings(self, problems)


@dataclass(frozen=True)
class Interactions:
    """A log as arrays, one entry per interaction."""

    user: Int32Array
    item: Int32Array
    day: Int32Array


@dataclass(frozen=True)
class RawFiles:
    """Numbers of what `synthesize` wrote."""

    interactions: int
    users: int
    items_in_log: int
    items_with_metadata: int


def synthesize(
    directory: Path,
    behaviour: PlantedBehaviour,
    *,
    missing_metadata: float = 0.05,
    review_text: int = 0,
    compress: bool = False,
) -> RawFiles:
    """Write ``reviews_Books.json`` and ``meta_Books.json`` into an existing directory.

    ``missing_metadata`` is the share of items without a line in the metadata file, ``review_text``
    the characters of text in a review: the real log has about 700.
    """
    if not 0 <= missing_metadata <= 1:
        raise MerlinSimError(
            f"`missing_metadata` should lie between 0 and 1. Received: {missing_metadata}"
        )
    rng = np.random.default_rng([behaviour.seed, 1 << 32])
    # Keys in random order, so that neither file order nor key order shows what was planted.
    item_number = rng.permutation(behaviour.items)
    user_number = rng.permutation(behaviour.users)
    has_metadata = rng.random(behaviour.items) >= missing_metadata
    log = plant_interactions(behaviour)
    text = (WORDS * (review_text // len(WORDS) + 1))[:review_text]
    with open_raw(directory / REVIEWS_FILE, compress) as file:
        for first in range(0, len(log.user), ROWS_PER_WRITE):
            part = slice(first, first + ROWS_PER_WRITE)
            users, items = user_number[log.user[part]], item_number[log.item[part]]
            _write_reviews(file, users, items, log.day[part], text)
    with open_raw(directory / METADATA_FILE, compress) as file:
        _write_metadata(file, behaviour, item_number, np.flatnonzero(has_metadata))
    return RawFiles(
        interactions=len(log.user),
        users=behaviour.users,
        items_in_log=len(np.unique(log.item)),
        items_with_metadata=int(has_metadata.sum()),
    )


def _write_reviews(
    file: IO[bytes], users: Integers, items: Integers, days: Int32Array, text: str
) -> None:
    known_days, known = np.unique(days, return_inverse=True)
    seconds = known_days.astype("datetime64[D]").astype("datetime64[s]")
    dates = pc.strftime(pa.array(seconds), format="%m %d, %Y")
    write_lines(
        file,
        [
            '{"reviewerID": "',
            numbered("A", users, 12),
            '", "asin": "',
            numbered("", items, 10),
            '", "helpful": [0, 0], "reviewText": "' + text + '", "overall": 5.0, "summary": "Read'
            ' it", "unixReviewTime": ',
            pc.cast(pa.array(days.astype(np.int64) * SECONDS_PER_DAY), pa.string()),
            ', "reviewTime": "',
            dates.take(pa.array(known)),
            '"}\n',
        ],
    )


def _write_metadata(
    file: IO[bytes], behaviour: PlantedBehaviour, item_number: Integers, items: Integers
) -> None:
    subjects = [SUBJECTS[number % len(SUBJECTS)] for number in range(behaviour.categories)]
    # repr() is how the real file was written: names with an apostrophe stand in double quotes.
    paths = pa.array(
        [
            repr([["Books", subject, f"{subject} {number}"], ["Books", "Used"]])
            for number, subject in enumerate(subjects)
        ]
    )
    bounds = category_starts(behaviour.items, behaviour.categories)
    category = np.repeat(np.arange(behaviour.categories), np.diff(bounds))
    for first in range(0, len(items), ROWS_PER_WRITE):
        part = items[first : first + ROWS_PER_WRITE]
        number = pc.cast(pa.array(item_number[part]), pa.string())
        write_lines(
            file,
            [
                "{'asin': '",
                numbered("", item_number[part], 10),
                "', 'title': \"A Reader's Book, No. ",
                number,
                "\", 'price': 9.99, 'salesRank': {'Books': ",
                number,
                "}, 'categories': ",
                paths.take(pa.array(category[part])),
                "}\n",
            ],
        )


def category_starts(items: int, categories: int) -> Integers:
    """The first item of each category, and the number of items at the end: items are in order.

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
    user, item, day = map(np.concatenate, zip(*blocks, strict=True))
    order = np.argsort(item, kind="stable")
    return Interactions(user[order], item[order], day[order])


def _plant_block(
    behaviour: PlantedBehaviour, block: int, first_user: int, last_user: int
) -> tuple[Int32Array, Int32Array, Int32Array]:
    rng = np.random.default_rng([behaviour.seed, block])
    lengths = _draw_lengths(behaviour, rng, last_user - first_user)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    user = np.repeat(np.arange(last_user - first_user, dtype=np.int32), lengths)
    category = _draw_categories(behaviour, rng, user, starts)
    bounds = category_starts(behaviour.items, behaviour.categories)
    size = bounds[category + 1] - bounds[category]
    rank = (size * rng.random(len(user)) ** POPULARITY).astype(np.int64)
    item = (bounds[category] + rank).astype(np.int32)
    day = _draw_days(rng, user, starts)
    times = 1 + (rng.random(len(user)) < behaviour.duplicates)
    return np.repeat(user + np.int32(first_user), times), item.repeat(times), day.repeat(times)


def _draw_lengths(behaviour: PlantedBehaviour, rng: np.random.Generator, users: int) -> Integers:
    beyond = rng.exponential(behaviour.mean_length - SHORTEST_ACTIVE + 1e-9, users)
    active = SHORTEST_ACTIVE + np.rint(beyond).astype(np.int64)
    too_short = np.minimum(rng.geometric(0.47, users), SHORTEST_ACTIVE - 1)
    return np.where(rng.random(users) < behaviour.short_users, too_short, active)


def _draw_categories(
    behaviour: PlantedBehaviour, rng: np.random.Generator, user: Int32Array, starts: Integers
) -> Integers:
    count = len(user)
    reason = rng.random(count)
    is_long = reason < behaviour.long_term
    is_short = ~is_long & (reason < behaviour.long_term + behaviour.short_term)

    # Lifelong interests take their turns: the n-th return of a user goes to interest n mod K.
    shape = (len(starts), behaviour.interests)
    interests = rng.integers(0, behaviour.categories, shape, dtype=np.int32)
    returns = np.cumsum(is_long, dtype=np.int64)
    before_user = returns[starts] - is_long[starts].astype(np.int64)
    lifelong = interests[user, (returns - before_user[user]) % behaviour.interests]

    # The interest of the moment: a new episode begins with a user, then now and then.
    drifts = rng.random(count) < 1.0 / behaviour.episode_length
    drifts[starts] = True
    episode = np.cumsum(drifts) - 1
    momentary = rng.integers(0, behaviour.categories, int(drifts.sum()), dtype=np.int32)[episode]

    anything = rng.integers(0, behaviour.categories, count, dtype=np.int32)
    return np.where(is_long, lifelong, np.where(is_short, momentary, anything)).astype(np.int64)


def _draw_days(rng: np.random.Generator, user: Int32Array, starts: Integers) -> Int32Array:
    gaps = np.floor(rng.exponential(MEAN_GAP_IN_DAYS, len(user))).astype(np.int64)
    arrival = FIRST_DAY + rng.integers(0, START_DAYS, len(starts))
    elapsed = np.cumsum(gaps)
    day: Int32Array = (arrival[user] + elapsed - elapsed[starts][user]).astype(np.int32)
    return day
