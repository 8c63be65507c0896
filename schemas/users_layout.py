"""The layout with one row per user: what its spec says beside the features of its samples.

A dataset of this layout describes the same features and channels as one of samples. Its chunks
are of the type ``users``: their files hold, of each user, the user features, the whole history of
items, oldest first, and which positions of it are samples. What else it takes to make samples of
that stands in the spec's metadata under ``users``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..foundation.problem import KeyPath, Problem, describe
from .channels import (
    HISTORY_TIME_INTERVALS,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    UNITS_OF_INTERVALS,
    USER_NUMERICAL,
)
from .contracts.behaviour import BEHAVIOUR
from .specs.feature_spec import FeatureSpec

USERS = "users"
"""The type of the chunks, and the key in the metadata."""
POPULARITY = "popularity"
UNIFORM = "uniform"
NEGATIVES = (POPULARITY, UNIFORM)
"""How items are drawn: as often as they were taken, or each as often as any other."""
KEYS = ("history", "positions", "item_table", "item_features", "negatives", "seed")
PER_POSITIVE = "negatives_per_positive"
"""A key that may be missing, for 1."""
NOT_IN_HISTORY = "negatives_not_in_history"
"""A key that may be missing, for false."""
TIMES = "times"
"""A key that is there where samples have time intervals."""
SAME_TIME = "same_time"
"""A key that is there where a sample does not see what has its own time."""
MAY_BE_MISSING = {PER_POSITIVE, NOT_IN_HISTORY, TIMES, SAME_TIME}
COLUMN, UNIT = "column", "unit"
CANDIDATES = 16
"""Samples of a user that share a history, unless set (see ``benchmarks/bench_grouped.py``)."""
MOST_PER_POSITIVE = 2**31 - 1


@dataclass(frozen=True)
class UsersLayout:
    """How samples are made of a user's row."""

    history: str
    """The column with the items of the whole history, oldest first."""

    positions: Mapping[str, tuple[str, str]]
    """Mapping (`train`, `test`) -> the columns that say from which position to which other one
    its samples are; position 0 is the oldest interaction."""

    item_table: str
    """The file with the columns `id`, `count` (interactions with the item) and item_features."""

    item_features: tuple[str, ...]
    """The item table's columns, one for each target item feature but the item itself."""

    negatives: str
    """How negatives are drawn: one of :data:`NEGATIVES`."""

    seed: int
    """Decides, with user, position and label, what is drawn."""

    negatives_per_positive: int = 1
    """Negative samples of each position."""

    negatives_not_in_history: bool = False
    """Whether no negative sample is an item of its user's history, before or after it."""

    times: str | None = None
    """The column with the time of each interaction of the history, in seconds; None without."""

    time_unit: str = "seconds"
    """What samples' time intervals are in, one of :data:`~.channels.UNITS_OF_INTERVALS`."""

    same_time: str | None = None
    """The column that says of each interaction how many of those before it have its own time: a
    sample does not see them. None where it sees all that stands before it."""

    @property
    def samples_per_position(self) -> int:
        """The negatives, and after them the positive."""
        return self.negatives_per_positive + 1

    def to_dict(self) -> dict[str, Any]:
        """Return it as the spec's metadata holds it."""
        stated = {
            "history": self.history,
            "positions": {name: list(columns) for name, columns in self.positions.items()},
            "item_table": self.item_table,
            "item_features": list(self.item_features),
            "negatives": self.negatives,
            "seed": self.seed,
        }
        several = {PER_POSITIVE: self.negatives_per_positive}
        stated |= several if self.negatives_per_positive != 1 else {}
        if self.times is not None:
            stated[TIMES] = {COLUMN: self.times, UNIT: self.time_unit}
        if self.same_time is not None:
            stated[SAME_TIME] = self.same_time
        return stated | ({NOT_IN_HISTORY: True} if self.negatives_not_in_history else {})


def usual_candidates(layout: UsersLayout) -> int:
    """About :data:`CANDIDATES`: the samples of as many whole positions, of one at least."""
    of_position = layout.samples_per_position
    return max(1, CANDIDATES // of_position) * of_position


def is_of_users(spec: FeatureSpec) -> bool:
    """Tell whether a dataset has one row per user, whatever else is wrong with its spec."""
    return bool(_users_mappings(spec))


def users_layout(spec: FeatureSpec) -> UsersLayout | None:
    """Return the layout of a spec that passed :func:`users_problems`; None for samples."""
    if not _users_mappings(spec):
        return None
    stated = spec.metadata[USERS]
    times = stated.get(TIMES, {COLUMN: None, UNIT: "seconds"})
    return UsersLayout(
        stated["history"],
        {name: (begin, end) for name, (begin, end) in stated["positions"].items()},
        stated["item_table"],
        tuple(stated["item_features"]),
        stated["negatives"],
        stated["seed"],
        stated.get(PER_POSITIVE, 1),
        stated.get(NOT_IN_HISTORY, False),
        times[COLUMN],
        times[UNIT],
        stated.get(SAME_TIME),
    )


def users_problems(spec: FeatureSpec, directory: Path | None) -> list[Problem]:
    """Gather what is wrong with a spec whose chunks are of users; nothing for any other spec.

    Args:
        spec: A spec of the right shape.
        directory: Where its paths start; None to leave the files alone.
    """
    mappings = _users_mappings(spec)
    if not mappings:
        return []
    found = [spec.problem(*problem) for problem in _wrong_chunks(spec, mappings)]
    found += [spec.problem(*problem) for problem in _wrong_features(spec)]
    stated = spec.metadata.get(USERS)
    if not isinstance(stated, Mapping) or set(stated) - MAY_BE_MISSING != set(KEYS):
        received = ", ".join(map(str, stated)) if isinstance(stated, Mapping) else describe(stated)
        expected = f"a mapping with {', '.join(KEYS)}: there are chunks of users"
        return [*found, spec.problem(("metadata", USERS), expected, received)]
    wrong = [*_wrong_columns(spec, stated, mappings), *_wrong_draws(stated, directory)]
    wrong += _wrong_times(spec, stated)
    return found + [
        spec.problem(("metadata", USERS, *path), expected, describe(received))
        for path, expected, received in wrong
    ]


def _users_mappings(spec: FeatureSpec) -> list[str]:
    return [
        name
        for name, chunks in spec.source_spec.items()
        if any(chunk.type == USERS for chunk in chunks)
    ]


def _wrong_chunks(spec: FeatureSpec, mappings: list[str]) -> Iterator[tuple[KeyPath, str, str]]:
    for name in spec.source_spec:
        if name not in mappings or len(spec.source_spec[name]) != 1:
            types = " + ".join(chunk.type for chunk in spec.source_spec[name])
            yield ("source_spec", name), "one chunk of users, as in another mapping", types


def _wrong_features(spec: FeatureSpec) -> Iterator[tuple[KeyPath, str, str]]:
    for problem in BEHAVIOUR.problems(spec):
        yield problem.path, problem.expected, problem.received
    if not spec.channel_spec.get("user_features"):
        yield ("channel_spec", "user_features"), "at least one feature: it tells users apart", "0"
    in_channels = {name for names in spec.channel_spec.values() for name in names}
    for name in spec.feature_spec:
        if name not in in_channels:
            yield ("feature_spec", name), "a feature of a channel: samples are made of those", name
    for channel in (USER_NUMERICAL, TARGET_ITEM_NUMERICAL, TARGET_ITEM_LISTS):
        for name in spec.channel_spec.get(channel, ()):
            expected = "ids and histories alone: samples of users are made of those"
            yield ("feature_spec", name), expected, name


def _wrong_columns(
    spec: FeatureSpec, stated: Mapping[str, Any], mappings: list[str]
) -> Iterator[tuple[KeyPath, str, Any]]:
    if not _is_name(stated["history"]):
        yield ("history",), "the name of a column", stated["history"]
    positions = stated["positions"]
    if not isinstance(positions, Mapping) or set(positions) != set(mappings):
        yield ("positions",), f"two columns for each of {', '.join(mappings)}", positions
        positions = {}
    taken = [stated["history"], *spec.channel_spec.get("user_features", ())]
    times = stated.get(TIMES)
    if isinstance(times, Mapping) and _is_name(times.get(COLUMN)):
        if times[COLUMN] in taken:
            yield (TIMES, COLUMN), "a column that holds nothing else", times[COLUMN]
        taken.append(times[COLUMN])
    if SAME_TIME in stated:
        column = stated[SAME_TIME]
        if not _is_name(column) or column in taken:
            yield (SAME_TIME,), "the name of a column that holds nothing else", column
        taken.append(column)
    for name, columns in positions.items():
        is_pair = isinstance(columns, list | tuple) and len(columns) == 2
        if not is_pair or not all(map(_is_name, columns)):
            yield ("positions", name), "two names of columns: first position, and end", columns
            continue
        for column in columns:
            if column in taken:
                yield ("positions", name), "columns that hold nothing else", column
            taken.append(column)
    features = stated["item_features"]
    count = max(0, len(spec.channel_spec.get(TARGET_ITEM_FEATURES, ())) - 1)
    if not isinstance(features, list | tuple) or not all(map(_is_name, features)):
        yield ("item_features",), "a list of names of columns", features
    elif len(features) != count:
        expected = f"{count} columns: {TARGET_ITEM_FEATURES} but the first"
        yield ("item_features",), expected, features


def _wrong_draws(
    stated: Mapping[str, Any], directory: Path | None
) -> Iterator[tuple[KeyPath, str, Any]]:
    table, seed = stated["item_table"], stated["seed"]
    normal = posixpath.normpath(table) if _is_name(table) else ".."
    if posixpath.isabs(normal) or normal in (".", "..") or normal.startswith("../"):
        yield ("item_table",), "the path of a file within the dataset directory", table
    elif directory is not None and not (directory / table).is_file():
        yield ("item_table",), "a file that exists", table
    if stated["negatives"] not in NEGATIVES:
        yield ("negatives",), " or ".join(NEGATIVES), stated["negatives"]
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        yield ("seed",), "a whole number in 0..2**63 - 1", seed
    count = stated.get(PER_POSITIVE, 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_PER_POSITIVE:
        yield (PER_POSITIVE,), "a whole number in 1..2**31 - 1", count
    if not isinstance(stated.get(NOT_IN_HISTORY, False), bool):
        yield (NOT_IN_HISTORY,), "true or false", stated[NOT_IN_HISTORY]


def _wrong_times(
    spec: FeatureSpec, stated: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str, Any]]:
    """Time intervals and the times that they are made of belong together."""
    intervals = spec.channel_spec.get(HISTORY_TIME_INTERVALS, ())
    if TIMES not in stated:
        if intervals:
            expected = f"{COLUMN} and {UNIT}, of which {', '.join(intervals)} is made"
            yield (TIMES,), expected, "nothing"
        return
    times = stated[TIMES]
    if not isinstance(times, Mapping) or set(times) != {COLUMN, UNIT}:
        yield (TIMES,), f"a mapping with {COLUMN} and {UNIT}", times
        return
    if not _is_name(times[COLUMN]):
        yield (TIMES, COLUMN), "the name of a column", times[COLUMN]
    if not isinstance(times[UNIT], str) or times[UNIT] not in UNITS_OF_INTERVALS:
        yield (TIMES, UNIT), " or ".join(UNITS_OF_INTERVALS), times[UNIT]
    if not intervals:
        yield (TIMES,), f"no times: the channel {HISTORY_TIME_INTERVALS} has no feature", times


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value
