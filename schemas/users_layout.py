"""The layout with one row per user: what its spec says besides the features of its samples.

A dataset of this layout describes the same features and channels as one of samples. Its chunks
are of the type ``users``: their files hold, of each user, the user features, the items of all
interactions, oldest first, with lists beside them, and which positions are samples. What else it
takes to make samples of that stands in the spec's metadata under ``users``.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..foundation.exceptions import KeyPath, Problem, describe
from .channels import (
    BEHAVIOUR,
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    UNITS_OF_INTERVALS,
    USER_FEATURES,
    USER_NUMERICAL,
)
from .feature_spec import FeatureSpec

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
"""A key that is there where something is made of the times of interactions."""
SAME_TIME = "same_time"
"""A key that is there where a sample does not see what has its own time."""
ROLES = "roles"
"""A key that is there where not every interaction is a positive sample and joins the history."""
SAMPLES_BEFORE = "samples_before"
"""A key that is there where users had samples in an earlier dataset."""
USER_HASH = "user_hash"
"""A key that may be missing, for none."""
PER_INTERACTION, ITEM_COLUMNS, ITEM_CHANGES, CHANGED_AT, CROSSES, ENCODINGS, LIFETIME_COUNTS = (
    "per_interaction", "item_columns", "item_changes", "changed_at", "crosses", "encodings",
    "lifetime_counts",
)  # fmt: skip
"""Keys that are there where features need them."""
COLUMN_KEYS = (SAME_TIME, ROLES, SAMPLES_BEFORE, USER_HASH, CHANGED_AT)
MAY_BE_MISSING = {
    PER_POSITIVE, NOT_IN_HISTORY, TIMES, *COLUMN_KEYS, PER_INTERACTION, ITEM_COLUMNS, ITEM_CHANGES,
    CROSSES, ENCODINGS, LIFETIME_COUNTS,
}  # fmt: skip
COLUMN, UNIT = "column", "unit"
ENCODING_KINDS = ("count", "popularity", "recency", "recent_popularity", "target")
POPULARITY_OF, POPULARITY_ADDS = 100_000.0, 1000.0
"""Rows of which a popularity says how many showed something, and rows added to those before a
sample."""
JOINS, SAMPLE, POSITIVE = 1, 2, 4
"""Bits of a role: the interaction joins the history of what comes later; it is a sample; its label
as a sample is 1."""
CANDIDATES = 16
"""Samples of a user that share a history, unless set."""
MOST_PER_POSITIVE = 2**31 - 1
OF_USERS = (USER_FEATURES, CONTEXT_FEATURES, USER_NUMERICAL)
"""Channels whose features stand in the rows of users."""


@dataclass(frozen=True)
class CrossOf:
    """Features that are hashed together to one of ``buckets`` ids."""

    features: tuple[str, ...]
    """Single-valued features of users, contexts and target items."""
    buckets: int


@dataclass(frozen=True)
class EncodingOf:
    """A number made of what came of a target item's feature before the sample's time."""

    feature: str
    kind: str
    """``count``: log(1 + how often it was shown). ``popularity``: log(1 + how many of 100,000
    rows showed it). ``recency``: log(1 + whole days since it was last shown on an earlier day).
    ``recent_popularity``: as popularity, where a row's weight halves in a week.
    ``target``: the share of those that were taken, with ``smoothing`` more at the share ``prior``.
    """
    events: str
    """The file with all interactions: ``id`` of the feature, ``seconds``, and ``taken``."""
    prior: float = 0.0
    smoothing: float = 0.0


@dataclass(frozen=True)
class UsersLayout:
    """How samples are made of a user's row.

    Lists of a row have an entry for each interaction of the user, oldest first.
    """

    history: str
    """The column with the items of all interactions."""

    positions: Mapping[str, tuple[str, str]]
    """Mapping (`train`, `test`) -> the columns that say from which position to which other one
    its samples are; position 0 is the oldest interaction that is a sample."""

    item_table: str
    """The file with the columns `id`, `count` (interactions with the item) and item_features."""

    item_features: tuple[str, ...]
    """The item table's columns, one for each target item feature but the item itself."""

    negatives: str
    """How negatives are drawn: one of :data:`NEGATIVES`."""

    seed: int
    """Decides, with user, position and label, what is drawn."""

    negatives_per_positive: int = 1
    """Negative samples of each positive one; 0 where the log has them."""

    negatives_not_in_history: bool = False
    """Whether no negative sample is an item of its user's history, before or after it."""

    times: str | None = None
    """The list of times, in seconds; None where nothing is made of them."""

    time_unit: str = "seconds"
    """What samples' time intervals are in, one of :data:`~.channels.UNITS_OF_INTERVALS`."""

    same_time: str | None = None
    """The list that says of each interaction how many of those before it have its own time: a
    sample does not see them. None where it sees all that stands before it."""

    roles: str | None = None
    """The list of roles: sums of :data:`JOINS`, :data:`SAMPLE` and :data:`POSITIVE`. None where
    every interaction is all three."""

    samples_before: str | None = None
    """The column that says how many samples a user had in earlier datasets: draws count on."""

    user_hash: str | None = None
    """The column with a hash of the key of each user who has no id, above 2^40, and 0 of others: it
    distinguishes them. None where their row numbers do."""

    per_interaction: tuple[str, ...] = ()
    """User features, contexts and numbers that are lists: an interaction has a value of its own."""

    item_columns: Mapping[str, str] = field(default_factory=dict)
    """Number or list of target items -> the item table's column."""

    item_changes: Mapping[str, str] = field(default_factory=dict)
    """Column of the item table -> the file with its values in time: ``id``, ``time``, ``value``. A
    sample has the value that was known at its own time."""

    changed_at: str | None = None
    """The list of times to compare those of ``item_changes`` with: whole numbers."""

    crosses: Mapping[str, CrossOf] = field(default_factory=dict)
    """List of one of target items -> what it is hashed of."""

    encodings: Mapping[str, EncodingOf] = field(default_factory=dict)
    """Number of target items -> what it counts."""

    lifetime_counts: Mapping[str, str] = field(default_factory=dict)
    """Number of target items -> the target item's feature whose occurrences in all that a sample's
    user did before are counted: log(1 + count)."""

    @property
    def samples_per_position(self) -> int:
        """The negatives, and after them the positive."""
        return self.negatives_per_positive + 1

    @property
    def lists(self) -> tuple[str, ...]:
        """The columns of lists but those of times."""
        more = (self.same_time, self.roles, self.changed_at)
        return (self.history, *filter(None, more), *self.per_interaction)

    @property
    def files(self) -> tuple[str, ...]:
        """The files besides those of users, relative to the dataset directory."""
        events = dict.fromkeys(encoding.events for encoding in self.encodings.values())
        return (self.item_table, *self.item_changes.values(), *events)

    def to_dict(self) -> dict[str, Any]:
        """Return it as the spec's metadata holds it."""
        stated: dict[str, Any] = json.loads(json.dumps(asdict(self)))  # lists, no tuples
        column, unit = stated.pop(TIMES), stated.pop("time_unit")
        stated[TIMES] = column and {COLUMN: column, UNIT: unit}
        several = stated.pop(PER_POSITIVE)
        stated = {name: value for name, value in stated.items() if value or name in KEYS}
        return stated | ({PER_POSITIVE: several} if several != 1 else {})


def usual_candidates(layout: UsersLayout) -> int:
    """About :data:`CANDIDATES`: the samples of as many whole positions, of one at least.

    Samples of several positions share one history, which cannot have the values of features that
    were known at the time of each.
    """
    of_position = layout.samples_per_position
    if set(layout.item_features) & set(layout.item_changes):
        return of_position
    return max(1, CANDIDATES // of_position) * of_position


def is_of_users(spec: FeatureSpec) -> bool:
    """Return whether a dataset has one row per user, whatever else is wrong with its spec."""
    return bool(_users_mappings(spec))


def users_layout(spec: FeatureSpec) -> UsersLayout | None:
    """Return the layout of a spec that passed :func:`users_problems`; None for samples."""
    if not _users_mappings(spec):
        return None
    stated = dict(spec.metadata[USERS])
    times = stated.pop(TIMES, {COLUMN: None, UNIT: "seconds"})
    stated |= {name: tuple(stated.get(name, ())) for name in ("item_features", PER_INTERACTION)}
    crosses, encodings = stated.pop(CROSSES, {}), stated.pop(ENCODINGS, {})
    return UsersLayout(
        **{**stated, "positions": {m: (b, e) for m, (b, e) in stated["positions"].items()}},
        times=times[COLUMN],
        time_unit=times[UNIT],
        crosses={n: CrossOf(tuple(c["features"]), c["buckets"]) for n, c in crosses.items()},
        encodings={n: EncodingOf(**one) for n, one in encodings.items()},
    )


def users_problems(spec: FeatureSpec, directory: Path | None) -> list[Problem]:
    """Gather what is wrong with a spec whose chunks are of users; nothing for any other spec.

    Without a directory the files are left alone.
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
    wrong += [*_wrong_times(spec, stated), *_wrong_features_of_items(spec, stated, directory)]
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
        yield ("channel_spec", "user_features"), "at least one feature: it identifies users", "0"
    in_channels = {name for names in spec.channel_spec.values() for name in names}
    for name in spec.feature_spec:
        if name not in in_channels:
            yield ("feature_spec", name), "a feature of a channel: samples are made of those", name
    for name in spec.channel_spec.get(USER_NUMERICAL, ()):
        if spec.feature_spec[name].dimensions:
            yield ("feature_spec", name), "one number a user, or a list with each interaction", name


def _wrong_columns(
    spec: FeatureSpec, stated: Mapping[str, Any], mappings: list[str]
) -> Iterator[tuple[KeyPath, str, Any]]:
    if not _is_name(stated["history"]):
        yield ("history",), "the name of a column", stated["history"]
    positions = stated["positions"]
    if not isinstance(positions, Mapping) or set(positions) != set(mappings):
        yield ("positions",), f"two columns for each of {', '.join(mappings)}", positions
        positions = {}
    own = [name for channel in OF_USERS for name in spec.channel_spec.get(channel, ())]
    taken = [stated["history"], *own]
    times = stated.get(TIMES)
    if isinstance(times, Mapping) and _is_name(times.get(COLUMN)):
        if times[COLUMN] in taken:
            yield (TIMES, COLUMN), "a column that holds nothing else", times[COLUMN]
        taken.append(times[COLUMN])
    for key in COLUMN_KEYS:
        column = stated.get(key)
        if key in stated and (not _is_name(column) or column in taken):
            yield (key,), "the name of a column that holds nothing else", column
        taken.append(column)
    given = stated.get(PER_INTERACTION, [])
    first = spec.channel_spec.get(USER_FEATURES, ("",))[:1]
    if not _is_list(given) or not all(name in own and name not in first for name in given):
        expected = f"features of {', '.join(OF_USERS)}, without the one that identifies users"
        yield (PER_INTERACTION,), expected, given
    for name, columns in positions.items():
        is_pair = _is_list(columns) and len(columns) == 2
        if not is_pair or not all(map(_is_name, columns)):
            yield ("positions", name), "two names of columns: first position, and end", columns
            continue
        for column in columns:
            if column in taken:
                yield ("positions", name), "columns that hold nothing else", column
            taken.append(column)
    features = stated["item_features"]
    count = max(0, len(spec.channel_spec.get(TARGET_ITEM_FEATURES, ())) - 1)
    if not _is_list(features) or not all(map(_is_name, features)):
        yield ("item_features",), "a list of names of columns", features
    elif len(features) != count:
        expected = f"{count} columns: {TARGET_ITEM_FEATURES} but the first"
        yield ("item_features",), expected, features


def _wrong_draws(
    stated: Mapping[str, Any], directory: Path | None
) -> Iterator[tuple[KeyPath, str, Any]]:
    yield from _wrong_file(("item_table",), stated["item_table"], directory)
    seed = stated["seed"]
    if stated["negatives"] not in NEGATIVES:
        yield ("negatives",), " or ".join(NEGATIVES), stated["negatives"]
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        yield ("seed",), "a whole number in 0..2**63 - 1", seed
    count = stated.get(PER_POSITIVE, 1)
    least = 0 if ROLES in stated else 1  # without labels a log has no negatives of its own
    if type(count) is not int or not least <= count <= MOST_PER_POSITIVE:
        yield (PER_POSITIVE,), f"a whole number in {least}..2**31 - 1", count
    if not isinstance(stated.get(NOT_IN_HISTORY, False), bool):
        yield (NOT_IN_HISTORY,), "true or false", stated[NOT_IN_HISTORY]


def _wrong_file(
    path: KeyPath, name: Any, directory: Path | None
) -> Iterator[tuple[KeyPath, str, Any]]:
    normal = posixpath.normpath(name) if _is_name(name) else ".."
    if posixpath.isabs(normal) or normal in (".", "..") or normal.startswith("../"):
        yield path, "the path of a file within the dataset directory", name
    elif directory is not None and not (directory / name).is_file():
        yield path, "a file that exists", name


def _wrong_times(
    spec: FeatureSpec, stated: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str, Any]]:
    """Times and what is made of them belong together."""
    made = [*spec.channel_spec.get(HISTORY_TIME_INTERVALS, ()), *_mapping(stated, ENCODINGS)]
    if TIMES not in stated:
        if made:
            expected = f"{COLUMN} and {UNIT}, of which {', '.join(map(str, made))} is made"
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
    if not made:
        expected = f"no times: the channel {HISTORY_TIME_INTERVALS} has no feature, none is encoded"
        yield (TIMES,), expected, times


def _wrong_features_of_items(
    spec: FeatureSpec, stated: Mapping[str, Any], directory: Path | None
) -> Iterator[tuple[KeyPath, str, Any]]:
    """Each number and list of target items comes from one place."""
    for key in (ITEM_COLUMNS, ITEM_CHANGES, CROSSES, ENCODINGS, LIFETIME_COUNTS):
        if not isinstance(stated.get(key, {}), Mapping):
            yield (key,), "a mapping", stated[key]
    columns, crosses = _mapping(stated, ITEM_COLUMNS), _mapping(stated, CROSSES)
    encodings, changes = _mapping(stated, ENCODINGS), _mapping(stated, ITEM_CHANGES)
    lifetimes = _mapping(stated, LIFETIME_COUNTS)
    channels = spec.channel_spec
    numbers, lists = (channels.get(c, ()) for c in (TARGET_ITEM_NUMERICAL, TARGET_ITEM_LISTS))
    named = sorted(map(str, (*columns, *crosses, *encodings, *lifetimes)))
    if named != sorted({*numbers, *lists}):
        expected = f"each of {', '.join((*numbers, *lists)) or 'no features'} in one of "
        yield (
            (ITEM_COLUMNS,),
            f"{expected}{ITEM_COLUMNS}, {CROSSES}, {ENCODINGS}, {LIFETIME_COUNTS}",
            named,
        )
    for name, column in columns.items():
        if not _is_name(column):
            yield (ITEM_COLUMNS, name), "the name of a column of the item table", column
    targets = channels.get(TARGET_ITEM_FEATURES, ())
    single = (*channels.get(CONTEXT_FEATURES, ()), *channels.get(USER_FEATURES, ()), *targets)
    for name, cross in crosses.items():
        fits = isinstance(cross, Mapping) and set(cross) == {"features", "buckets"}
        fits = fits and _is_list(cross["features"]) and bool(cross["features"])
        fits = fits and all(one in single for one in cross["features"]) and name in lists
        if not (fits and type(cross["buckets"]) is int and 0 < cross["buckets"] < 2**31):
            yield (CROSSES, name), "a list, of features with one id each, and buckets", cross
    keys = {"feature", "kind", "events", "prior", "smoothing"}
    for name, one in encodings.items():
        fits = isinstance(one, Mapping) and set(one) == keys and name in numbers
        fits = fits and one["feature"] in targets
        fits = fits and one["kind"] in ENCODING_KINDS
        if not (fits and all(type(one[k]) in (int, float) for k in ("prior", "smoothing"))):
            yield (ENCODINGS, name), f"{', '.join(sorted(keys))} of a target item's feature", one
            continue
        yield from _wrong_file((ENCODINGS, name, "events"), one["events"], directory)
    for name, feature in lifetimes.items():
        if name not in numbers or feature not in targets:
            yield (LIFETIME_COUNTS, name), "a number, of a target item's feature", feature
    features = stated["item_features"]
    known = [*(features if _is_list(features) else ()), *columns.values()]
    for name, file in changes.items():
        if name not in known:
            yield (ITEM_CHANGES, name), "a column of the item table that features are made of", name
        yield from _wrong_file((ITEM_CHANGES, name), file, directory)
    if bool(changes) != (CHANGED_AT in stated):
        yield (CHANGED_AT,), f"a column of times, where there are {ITEM_CHANGES}", list(changes)


def _mapping(stated: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = stated.get(key, {})
    return found if isinstance(found, Mapping) else {}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and "\0" not in value
