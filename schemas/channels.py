"""Channels: what a model takes, by family, and how a Merlin schema's tags tell them.

A channel is a named group of features that a model treats alike. Which channels a family of
models needs is its contract; a dataset is held against it before any heavy work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .dtypes import is_integer, is_number
from .exceptions import MerlinSimError, SpecError
from .problem import Problem

if TYPE_CHECKING:
    from merlin.schema import ColumnSchema, Schema

    from .feature_spec import Feature, FeatureSpec

LABEL = "label"
USER_FEATURES = "user_features"
TARGET_ITEM_FEATURES = "target_item_features"
POSITIVE_HISTORY = "positive_history"
NEGATIVE_HISTORY = "negative_history"
HISTORY_TIME_INTERVALS = "history_time_intervals"
CATEGORICAL = "categorical"
NUMERICAL = "numerical"

SIM_CHANNELS = (
    LABEL,
    USER_FEATURES,
    TARGET_ITEM_FEATURES,
    POSITIVE_HISTORY,
    NEGATIVE_HISTORY,
    HISTORY_TIME_INTERVALS,
)
DLRM_CHANNELS = (LABEL, CATEGORICAL, NUMERICAL)
HISTORIES = (POSITIVE_HISTORY, NEGATIVE_HISTORY, HISTORY_TIME_INTERVALS)


@dataclass(frozen=True)
class Channel:
    """What a family expects of one of its channels."""

    fewest: int
    """How many features there must be at least."""

    most: int | None = None
    """How many there may be at most; None for any number."""

    is_list: bool = False
    """Whether each feature is a list (a history) rather than one value."""

    is_categorical: bool = False
    """Whether each feature is ids, with a cardinality, looked up in a table."""


@dataclass(frozen=True)
class ChannelContract:
    """The channels of one family of models."""

    family: str
    """The family's name, as `--model` takes it."""

    channels: Mapping[str, Channel]
    """Channel name -> what the family expects of it; other channels are refused."""

    shared_tables: tuple[str, ...] = ()
    """Channels whose features share tables place by place, so must match in number and size."""

    def problems(self, spec: FeatureSpec) -> list[Problem]:
        """Gather everything in which ``spec`` is not what the family needs."""
        problems = []
        for name, channel in self.channels.items():
            problems += self._check_count(spec, name, channel)
            for place, feature in enumerate(spec.channel_spec.get(name, ())):
                if feature in spec.feature_spec:
                    problems += _check_feature(spec, name, place, channel)
        for name in spec.channel_spec:
            if name not in self.channels:
                expected = f"a channel of {self.family}: " + ", ".join(self.channels)
                problems.append(spec.problem(("channel_spec", name), expected, repr(name)))
        return problems + self._check_shared(spec) + _check_lengths(spec)

    def check(self, spec: FeatureSpec) -> None:
        """Hold a dataset's spec against the contract.

        Raises:
            SpecError: With everything that does not match.
        """
        problems = self.problems(spec)
        if problems:
            raise SpecError(spec.path or f"the dataset, as input of {self.family}", problems)

    def _check_count(self, spec: FeatureSpec, name: str, channel: Channel) -> list[Problem]:
        count = len(spec.channel_spec.get(name, ()))
        if channel.fewest <= count and (channel.most is None or count <= channel.most):
            return []
        if channel.fewest == channel.most:
            expected = f"{channel.fewest} feature" + ("" if channel.fewest == 1 else "s")
        elif channel.most is None:
            expected = f"at least {channel.fewest} feature" + ("" if channel.fewest == 1 else "s")
        else:
            expected = f"{channel.fewest} to {channel.most} features"
        received = str(count) if name in spec.channel_spec else "no such channel"
        return [spec.problem(("channel_spec", name), f"{expected} for {self.family}", received)]

    def _check_shared(self, spec: FeatureSpec) -> list[Problem]:
        present = [name for name in self.shared_tables if spec.channel_spec.get(name)]
        if len(present) < 2:
            return []
        first = present[0]
        problems = []
        for name in present[1:]:
            leaders, features = spec.channel_spec[first], spec.channel_spec[name]
            if len(features) != len(leaders):
                expected = f"as many features as {first} has ({len(leaders)})"
                received = str(len(features))
                problems.append(spec.problem(("channel_spec", name), expected, received))
            for place, (leader, feature) in enumerate(zip(leaders, features, strict=False)):
                ours, theirs = spec.feature_spec.get(feature), spec.feature_spec.get(leader)
                if ours and theirs and ours.cardinality != theirs.cardinality:
                    expected = f"the cardinality of {leader} ({theirs.cardinality}): one table"
                    where = ("channel_spec", name, place)
                    received = f"{ours.cardinality} ({feature})"
                    problems.append(spec.problem(where, expected, received))
        return problems


_SIM_FAMILY = {
    LABEL: Channel(fewest=1, most=1),
    USER_FEATURES: Channel(fewest=0, is_categorical=True),
    TARGET_ITEM_FEATURES: Channel(fewest=1, is_categorical=True),
    POSITIVE_HISTORY: Channel(fewest=1, is_list=True, is_categorical=True),
    NEGATIVE_HISTORY: Channel(fewest=1, is_list=True, is_categorical=True),
    HISTORY_TIME_INTERVALS: Channel(fewest=0, most=1, is_list=True),
}
_SHARED = (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)

CONTRACTS = {
    "sim": ChannelContract("sim", _SIM_FAMILY, _SHARED),
    "dien": ChannelContract("dien", _SIM_FAMILY, _SHARED),
    "din": ChannelContract("din", _SIM_FAMILY, _SHARED),
    "dlrm": ChannelContract(
        "dlrm",
        {
            LABEL: Channel(fewest=1, most=1),
            CATEGORICAL: Channel(fewest=1, is_categorical=True),
            NUMERICAL: Channel(fewest=0),
        },
    ),
}


def may_be_empty(channel: str) -> bool:
    """Tell whether some family takes this channel without any feature.

    >>> may_be_empty("user_features"), may_be_empty("label")
    (True, False)
    """
    known = [
        contract.channels[channel]
        for contract in CONTRACTS.values()
        if channel in contract.channels
    ]
    return any(entry.fewest == 0 for entry in known)


def _check_feature(spec: FeatureSpec, name: str, place: int, channel: Channel) -> list[Problem]:
    feature_name = spec.channel_spec[name][place]
    feature = spec.feature_spec[feature_name]
    problems = [
        spec.problem(("feature_spec", feature_name, key), f"{expected} (channel {name})", received)
        for key, expected, received in _mismatches(feature, channel)
    ]
    return problems


def _mismatches(feature: Feature, channel: Channel) -> list[tuple[str, str, str]]:
    found = []
    if channel.is_list and (feature.dimensions is None or len(feature.dimensions) != 1):
        received = "none" if feature.dimensions is None else str(list(feature.dimensions))
        found.append(("dimensions", "one length, such as [100]", received))
    if not channel.is_list and feature.dimensions is not None:
        found.append(("dimensions", "none: one value a row", str(list(feature.dimensions))))
    if channel.is_categorical:
        if not isinstance(feature.cardinality, int):
            received = "none" if feature.cardinality is None else "auto"
            found.append(("cardinality", "a positive whole number", received))
        if not is_integer(feature.dtype):
            found.append(("dtype", "a whole-number dtype", feature.dtype))
    elif not is_number(feature.dtype):
        found.append(("dtype", "a number's dtype", feature.dtype))
    return found


def _check_lengths(spec: FeatureSpec) -> list[Problem]:
    histories = [
        (name, spec.feature_spec[name].dimensions)
        for channel in HISTORIES
        for name in spec.channel_spec.get(channel, ())
        if name in spec.feature_spec and spec.feature_spec[name].dimensions
    ]
    problems = []
    for name, length in histories[1:]:
        leader, expected = histories[0]
        if length != expected:
            text = f"{list(expected or ())} as in {leader}: histories have one length"
            where = ("feature_spec", name, "dimensions")
            problems.append(spec.problem(where, text, str(list(length or ()))))
    return problems


def channels_of(schema: Schema) -> dict[str, list[str]]:
    """Read the channels of the SIM family (or else of DLRM) from a Merlin schema's tags.

    A tag that is a channel's name decides. Otherwise: a column tagged TARGET (or
    BINARY_CLASSIFICATION) is the label; lists tagged SEQUENCE are the positive history (the time
    intervals where tagged TIME too); single values tagged USER or ITEM are user and target item
    features. A schema with neither a SEQUENCE list nor a SIM channel's name among its tags is
    read as DLRM's: CATEGORICAL and CONTINUOUS columns are its channels.

    Args:
        schema: The schema of a dataset's columns.

    Returns:
        Channel name -> column names, in the schema's order; channels without columns are left out.
    """
    columns = list(schema.column_schemas.values())
    reading = _sim_channel if any(map(_is_of_sim, columns)) else _dlrm_channel
    found = [(reading(column), column.name) for column in columns]
    channels: dict[str, list[str]] = {}
    for channel in dict.fromkeys((*SIM_CHANNELS, *DLRM_CHANNELS)):
        names = [name for of_column, name in found if of_column == channel]
        if names:
            channels[channel] = names
    return channels


def require_channels(schema: Schema, where: str, family: str | None = None) -> dict[str, list[str]]:
    """Do as :func:`channels_of` does; say which tags are missing where a channel is.

    Args:
        schema: The schema.
        where: What the message begins with.
        family: The family whose channels must be there; None for the one the tags look like.

    Raises:
        MerlinSimError: Where no family's channels are complete.
    """
    channels = channels_of(schema)
    is_sim = any(map(_is_of_sim, schema.column_schemas.values()))
    contract = CONTRACTS[family or ("sim" if is_sim else "dlrm")]
    missing = [
        n for n, channel in contract.channels.items() if channel.fewest and n not in channels
    ]
    if missing:
        lines = "\n".join(f"  {name}: {_TAGS_WANTED[name]}" for name in missing)
        raise MerlinSimError(
            f"{where}: the schema's tags do not tell these channels:\n{lines}\n"
            "Tag the columns in the workflow (AddTags), or write a feature_spec.yaml."
        )
    return channels


_TAGS_WANTED = {
    LABEL: "no column is tagged Tags.TARGET",
    TARGET_ITEM_FEATURES: "no single-value column is tagged Tags.ITEM",
    POSITIVE_HISTORY: "no list column is tagged Tags.SEQUENCE",
    NEGATIVE_HISTORY: 'no list column is tagged "negative_history"',
    CATEGORICAL: "no column is tagged Tags.CATEGORICAL",
}


def _tag_names(column: ColumnSchema) -> set[str]:
    return {getattr(tag, "value", tag) for tag in column.tags}


def _is_of_sim(column: ColumnSchema) -> bool:
    tags = _tag_names(column)
    is_sequence = column.is_list and "sequence" in tags
    return bool(is_sequence or tags & {name for name in SIM_CHANNELS if name != LABEL})


def _is_label(tags: set[str]) -> bool:
    return bool(tags & {LABEL, "target", "binary_classification"})


def _sim_channel(column: ColumnSchema) -> str | None:
    tags = _tag_names(column)
    named = [channel for channel in SIM_CHANNELS if channel in tags]
    if named:
        return named[0]
    if _is_label(tags):
        return LABEL
    if column.is_list:
        if "sequence" not in tags:
            return None
        return HISTORY_TIME_INTERVALS if "time" in tags else POSITIVE_HISTORY
    if "user" in tags:
        return USER_FEATURES
    return TARGET_ITEM_FEATURES if "item" in tags else None


def _dlrm_channel(column: ColumnSchema) -> str | None:
    tags = _tag_names(column)
    if _is_label(tags):
        return LABEL
    if column.is_list:
        return None
    if CATEGORICAL in tags:
        return CATEGORICAL
    return NUMERICAL if NUMERICAL in tags or "continuous" in tags else None
