"""Channels: their names, what a family of models takes of them, and which contracts are known.

A channel is a named group of features that a model treats alike. What a dataset is, is known here,
below the models: folders that import no model make datasets of behaviour and of plain rows. A
family says which of the two it takes, under its own name, or brings a contract of its own, and is
registered with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..foundation.exceptions import MerlinSimError, Problem, SpecError
from .dtypes import is_integer, is_number

if TYPE_CHECKING:
    from merlin.schema import ColumnSchema, Schema

    from .feature_spec import Feature, FeatureSpec


@dataclass(frozen=True)
class Channel:
    """Requirements of a family for one of its channels."""

    fewest: int = 0
    """How many features there must be at least."""

    most: int | None = None
    """How many there may be at most; None for any number."""

    is_list: bool = False
    """Whether each feature is a list (a history) rather than one value."""

    is_categorical: bool = False
    """Whether each feature is ids, with a cardinality, looked up in a table."""

    takes_vectors: bool = False
    """Whether a feature may be a vector of one length, not only one number."""

    is_pooled: bool = False
    """Whether each feature is a list of ids without an order, whose vectors become their mean."""

    tags: tuple[str, ...] = ()
    """Merlin's tags of each of its columns, besides the channel's name."""

    first_tags: tuple[str, ...] = ()
    """Merlin's tags of its first column alone."""

    matching_tags: tuple[str, ...] = ()
    """Tags, or several with blanks between, by which a column that is not tagged with the channel's
    name is of it; of several channels that match, the one with the most. A channel whose name is
    one of Merlin's own tags lists that too: alone it does not decide."""

    takes_lists: bool = False
    """Whether its tags match a list column too, which the contract then refuses by its shape."""

    aligned_with: str | None = None
    """The channel whose lists have the same positions as its lists."""

    missing: str = ""
    """The message for a schema in which no column is of this channel."""

    def match(self, tags: set[str], is_list: bool) -> int:
        """Return how many tags match a column, at most; 0 for none."""
        if is_list and not self.is_list and not self.takes_lists:
            return 0
        if self.is_list and not is_list:
            return 0
        several = [set(one.split()) for one in self.matching_tags]
        return max((len(expected) for expected in several if expected <= tags), default=0)

    def is_named_in(self, name: str, tags: set[str]) -> bool:
        """Return whether a column is tagged with the channel's name where Merlin has no tag."""
        return name in tags and all(name not in several.split() for several in self.matching_tags)


@dataclass(frozen=True)
class ChannelContract:
    """The channels of one family of models, or of one kind of dataset."""

    name: str
    """Whose they are, for messages."""

    channels: Mapping[str, Channel]
    """Channel name -> what is expected of it; other channels are refused."""

    shared_tables: tuple[str, ...] = ()
    """Channels whose features share tables, the first with the first, so must match in number and
    size. Read from a schema, those of the others are ordered as the features of the first that have
    their domain."""

    first_id: int = 0
    """1: ids run 1..cardinality, 0 pads, and tables have cardinality + 1 rows. 0: ids run
    0..cardinality - 1."""

    def of(self, family: str) -> ChannelContract:
        """Return the same contract as that of a family of models."""
        return replace(self, name=family)

    @property
    def histories(self) -> tuple[str, ...]:
        """The channels of lists; all lists of a row have one length."""
        return tuple(name for name, channel in self.channels.items() if channel.is_list)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The channels of ids."""
        return tuple(name for name, channel in self.channels.items() if channel.is_categorical)

    def read(self, schema: Schema) -> dict[str, list[str]]:
        """Read this family's channels from a Merlin schema's tags.

        Returns:
            Channel name -> column names, in the schema's order, but histories in that of the
            target features whose domains they have; channels without columns are left out.
        """
        found: dict[str, list[str]] = {name: [] for name in self.channels}
        for column in schema.column_schemas.values():
            channel = self._channel_of(column)
            if channel is not None:
                found[channel].append(column.name)
        present = {name: columns for name, columns in found.items() if columns}
        first, *others = [name for name in self.shared_tables if name in present] or [""]
        for name in others:
            present[name] = _paired(present[first], present[name], schema)
        return present

    def matches(self, schema: Schema) -> bool:
        """Return whether a column bears the name of one of the channels, or is one of its lists."""
        for column in schema.column_schemas.values():
            tags, is_list = tag_names(column), bool(column.is_list)
            for name, channel in self.channels.items():
                if channel.is_named_in(name, tags):
                    return True
                if is_list and channel.is_list and channel.match(tags, is_list):
                    return True
        return False

    def _channel_of(self, column: ColumnSchema) -> str | None:
        tags, is_list = tag_names(column), bool(column.is_list)
        for name, channel in self.channels.items():
            if channel.is_named_in(name, tags):
                return name
        known = {name: c.match(tags, is_list) for name, c in self.channels.items()}
        best = max(known, key=known.__getitem__)
        return best if known[best] else None

    def require(self, schema: Schema, where: str) -> dict[str, list[str]]:
        """Do as :meth:`read` does; say which tags are missing where a channel is."""
        found = self.read(schema)
        lines = [
            f"  {name}: " + (channel.missing or f'no column is tagged "{name}"')
            for name, channel in self.channels.items()
            if channel.fewest and name not in found
        ]
        if lines:
            listed = "\n".join(lines)
            raise MerlinSimError(
                f"{where}: the schema's tags do not name these channels:\n{listed}\n"
                "Tag the columns in the workflow (AddTags), or write a feature_spec.yaml."
            )
        return found

    def problems(self, spec: FeatureSpec) -> list[Problem]:
        """Gather everything in which ``spec`` is not what the family needs."""
        problems = []
        for name, channel in self.channels.items():
            problems += self._check_count(spec, name, channel)
            features = [n for n in spec.channel_spec.get(name, ()) if n in spec.feature_spec]
            problems += [
                spec.problem(("feature_spec", feature, key), f"{expected} (channel {name})", found)
                for feature in features
                for key, expected, found in _mismatches(spec.feature_spec[feature], channel)
            ]
        for name in spec.channel_spec:
            if name not in self.channels:
                expected = f"a channel of {self.name}: " + ", ".join(self.channels)
                problems.append(spec.problem(("channel_spec", name), expected, repr(name)))
        return problems + self._check_shared(spec) + _check_lengths(spec, self.histories)

    def check(self, spec: FeatureSpec) -> None:
        """Refuse a dataset whose spec is not what the contract asks for."""
        problems = self.problems(spec)
        if problems:
            raise SpecError(spec.path or f"the dataset, as input of {self.name}", problems)

    def _check_count(self, spec: FeatureSpec, name: str, channel: Channel) -> list[Problem]:
        count = len(spec.channel_spec.get(name, ()))
        if channel.fewest <= count and (channel.most is None or count <= channel.most):
            return []
        expected = f"{channel.fewest} to {channel.most}"
        if channel.most in (channel.fewest, None):
            expected = f"{'at least ' if channel.most is None else ''}{channel.fewest}"
        expected += " feature" if channel.fewest == 1 and channel.most in (1, None) else " features"
        received = str(count) if name in spec.channel_spec else "no such channel"
        return [spec.problem(("channel_spec", name), f"{expected} for {self.name}", received)]

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
            for index, (leader, feature) in enumerate(zip(leaders, features, strict=False)):
                ours, theirs = spec.feature_spec.get(feature), spec.feature_spec.get(leader)
                if ours and theirs and ours.cardinality != theirs.cardinality:
                    expected = f"the cardinality of {leader} ({theirs.cardinality}): one table"
                    where = ("channel_spec", name, index)
                    received = f"{ours.cardinality} ({feature})"
                    problems.append(spec.problem(where, expected, received))
        return problems


def tag_names(column: ColumnSchema) -> set[str]:
    """Return a column's tags as plain text."""
    return {str(getattr(tag, "value", tag)) for tag in column.tags}


def domain_of(column: ColumnSchema) -> str:
    """Return the name of a column's domain, which is its table; its own where that has none."""
    domain = column.properties.get("domain") or {}
    return str(domain.get("name") or column.name)


def _paired(leaders: Sequence[str], columns: Sequence[str], schema: Schema) -> list[str]:
    """Order columns as the leaders of the same domain; a column of no leader takes what is left."""
    if len(columns) != len(leaders):
        return list(columns)
    left, partners = list(columns), []
    for leader in leaders:
        domain = domain_of(schema[leader])
        partner = next((name for name in left if domain_of(schema[name]) == domain), None)
        if partner is not None:
            left.remove(partner)
        partners.append(partner)
    return [left.pop(0) if partner is None else partner for partner in partners]


def _mismatches(feature: Feature, channel: Channel) -> list[tuple[str, str, str]]:
    found = []
    lengths = feature.dimensions
    received = "none" if lengths is None else str(list(lengths))
    if channel.is_list or channel.is_pooled:
        if lengths is None or len(lengths) != 1:
            found.append(("dimensions", "one length, such as [100]", received))
    elif channel.takes_vectors:
        if lengths is not None and len(lengths) != 1:
            found.append(("dimensions", "none, or the length of a vector", received))
    elif lengths is not None:
        found.append(("dimensions", "none: one value a row", received))
    if channel.is_categorical:
        if not isinstance(feature.cardinality, int):
            received = "none" if feature.cardinality is None else "auto"
            found.append(("cardinality", "a positive whole number", received))
        if not is_integer(feature.dtype):
            found.append(("dtype", "a whole-number dtype", feature.dtype))
    elif not is_number(feature.dtype):
        found.append(("dtype", "a number's dtype", feature.dtype))
    return found


def _check_lengths(spec: FeatureSpec, channels: tuple[str, ...]) -> list[Problem]:
    histories = [
        (name, spec.feature_spec[name].dimensions)
        for channel in channels
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


LABEL = "label"
USER_FEATURES = "user_features"
CONTEXT_FEATURES = "context_features"
TARGET_ITEM_FEATURES = "target_item_features"
POSITIVE_HISTORY = "positive_history"
NEGATIVE_HISTORY = "negative_history"
HISTORY_TIME_INTERVALS = "history_time_intervals"
TARGET_ITEM_LISTS = "target_item_lists"
USER_NUMERICAL = "user_numerical"
TARGET_ITEM_NUMERICAL = "target_item_numerical"
CATEGORICAL = "categorical"
NUMERICAL = "numerical"

UNITS_OF_INTERVALS = {
    "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0,
}  # fmt: skip
"""Units of time intervals, in seconds."""


LABEL_CHANNEL = Channel(
    fewest=1,
    most=1,
    tags=("target", "binary_classification"),
    matching_tags=("label", "target", "binary_classification"),
    takes_lists=True,
    missing="no column is tagged Tags.TARGET",
)


_HISTORY_TAGS = ("sequence", "list", "categorical")

BEHAVIOUR = ChannelContract(
    "behaviour",
    {
        LABEL: LABEL_CHANNEL,
        USER_FEATURES: Channel(
            is_categorical=True,
            tags=("user", "categorical"),
            matching_tags=("user",),
        ),
        CONTEXT_FEATURES: Channel(
            is_categorical=True,
            tags=("context", "categorical"),
            matching_tags=("context",),
        ),
        TARGET_ITEM_FEATURES: Channel(
            fewest=1,
            is_categorical=True,
            tags=("item", "categorical"),
            first_tags=("item_id",),
            matching_tags=("item",),
            missing="no single-value column is tagged Tags.ITEM",
        ),
        POSITIVE_HISTORY: Channel(
            fewest=1,
            is_list=True,
            is_categorical=True,
            tags=_HISTORY_TAGS,
            matching_tags=("sequence",),
            missing="no list column is tagged Tags.SEQUENCE",
        ),
        NEGATIVE_HISTORY: Channel(is_list=True, is_categorical=True, tags=_HISTORY_TAGS),
        HISTORY_TIME_INTERVALS: Channel(
            most=1,
            is_list=True,
            tags=("sequence", "list", "time", "continuous"),
            aligned_with=POSITIVE_HISTORY,
            matching_tags=("sequence time",),
        ),
        TARGET_ITEM_LISTS: Channel(
            is_pooled=True, is_categorical=True, tags=("item", "categorical")
        ),
        USER_NUMERICAL: Channel(
            takes_vectors=True,
            tags=("user", "continuous"),
            matching_tags=("user continuous",),
        ),
        TARGET_ITEM_NUMERICAL: Channel(
            takes_vectors=True,
            tags=("item", "continuous"),
            matching_tags=("item continuous",),
        ),
    },
    shared_tables=(TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY),
    first_id=1,
)


PLAIN_ROWS = ChannelContract(
    "plain rows",
    {
        LABEL: LABEL_CHANNEL,
        CATEGORICAL: Channel(
            fewest=1,
            is_categorical=True,
            tags=("categorical",),
            matching_tags=("categorical",),
            missing="no column is tagged Tags.CATEGORICAL",
        ),
        NUMERICAL: Channel(tags=("continuous",), matching_tags=("numerical", "continuous")),
    },
)


CONTRACTS: dict[str, ChannelContract] = {kind.name: kind for kind in (BEHAVIOUR, PLAIN_ROWS)}
"""Kind of dataset or name of a family -> its contract, in the order in which they are tried."""

FAMILIES = "merlin_sim.models.known_families"
"""What makes the package's own families known, once one is asked for by its name: a dataset may be
opened for a family before any module of the models, which stand above this room, is imported."""


def register_contract(family: str, contract: ChannelContract) -> None:
    """Make a family's channels known to specs and schemas.

    Refuses one whose name another has, or that shares a channel with another and counts ids
    otherwise: a dataset would not say which of the two it is of.
    """
    if CONTRACTS.get(family, contract) != contract:
        raise MerlinSimError(f"the family {family!r} has a contract of channels already.")
    for name, other in CONTRACTS.items():
        shared = set(other.categorical) & set(contract.categorical)
        if shared and other.first_id != contract.first_id:
            raise MerlinSimError(
                f"the family {family!r} counts ids from {contract.first_id}, but "
                f"{name!r}, which has the channel {min(shared)!r} too, from {other.first_id}."
            )
    CONTRACTS[family] = contract


def contract_named(family: str) -> ChannelContract:
    """Return the contract of a family."""
    if family not in CONTRACTS:
        importlib.import_module(FAMILIES).families()
    if family not in CONTRACTS:
        known = ", ".join(CONTRACTS)
        raise MerlinSimError(
            f"`model` should be a known family of models: {known}. Received: {family!r}"
        )
    return CONTRACTS[family]


def contract_of(channels: Iterable[str]) -> ChannelContract:
    """Return the contract that a dataset with these channels is of: the first with its ids.

    >>> contract_of(["label", "positive_history"]).name, contract_of(["label"]).name
    ('behaviour', 'plain rows')
    """
    names = set(channels)
    for contract in CONTRACTS.values():
        if names & set(contract.categorical):
            return contract
    return PLAIN_ROWS


def known_channel(name: str) -> Channel | None:
    """Return what the first contract that has a channel of this name expects of it."""
    found = (c.channels[name] for c in CONTRACTS.values() if name in c.channels)
    return next(found, None)


def may_be_empty(channel: str) -> bool:
    """Return whether some contract takes this channel without any feature.

    >>> may_be_empty("user_features"), may_be_empty("label")
    (True, False)
    """
    return any(channel in c.channels and not c.channels[channel].fewest for c in CONTRACTS.values())


def channels_of(schema: Schema) -> dict[str, list[str]]:
    """Read the channels of the contract that a Merlin schema's tags look like.

    A tag that is a channel's name decides. Otherwise, of behaviour: a column tagged TARGET (or
    BINARY_CLASSIFICATION) is the label; lists tagged SEQUENCE are the positive history (the time
    intervals where tagged TIME too); single values tagged USER or ITEM are user and target item
    features. A schema that bears neither a channel's name nor a list of a contract among its tags
    is read as plain rows: CATEGORICAL and CONTINUOUS columns are its channels.

    Channel name -> column names, in the schema's order; channels without columns are left out.
    """
    return _contract_of_schema(schema).read(schema)


def require_channels(schema: Schema, where: str, family: str | None = None) -> dict[str, list[str]]:
    """Do as :func:`channels_of` does; say which tags are missing where a channel is.

    Without a ``family`` the channels are those of the family that the tags look like.
    """
    contract = contract_named(family) if family else _contract_of_schema(schema)
    return contract.require(schema, where)


def _contract_of_schema(schema: Schema) -> ChannelContract:
    matching = (contract for contract in CONTRACTS.values() if contract.matches(schema))
    return next(matching, PLAIN_ROWS)
