"""The channels of every family that is registered: which contract a spec or a schema is of.

A channel is a named group of features that a model treats alike. Which channels a family of
models needs is its contract; a dataset is checked against it before any heavy work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..foundation.exceptions import MerlinSimError
from .channel_contract import Channel, ChannelContract

if TYPE_CHECKING:
    from merlin.schema import Schema

LABEL = "label"
USER_FEATURES = "user_features"
TARGET_ITEM_FEATURES = "target_item_features"
POSITIVE_HISTORY = "positive_history"
NEGATIVE_HISTORY = "negative_history"
HISTORY_TIME_INTERVALS = "history_time_intervals"
TARGET_ITEM_LISTS = "target_item_lists"
USER_NUMERICAL = "user_numerical"
TARGET_ITEM_NUMERICAL = "target_item_numerical"
CATEGORICAL = "categorical"
NUMERICAL = "numerical"


def _signs(*alternatives: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(tags.split()) for tags in alternatives)


LABEL_CHANNEL = Channel(
    fewest=1,
    most=1,
    tags=("target", "binary_classification"),
    signs=_signs("label", "target", "binary_classification"),
    takes_lists=True,
    missing="no column is tagged Tags.TARGET",
)
_HISTORY_TAGS = ("sequence", "list", "categorical")
_SIM_FAMILY = {
    LABEL: LABEL_CHANNEL,
    USER_FEATURES: Channel(
        fewest=0, is_categorical=True, tags=("user", "categorical"), signs=_signs("user")
    ),
    TARGET_ITEM_FEATURES: Channel(
        fewest=1,
        is_categorical=True,
        tags=("item", "categorical"),
        first_tags=("item_id",),
        signs=_signs("item"),
        missing="no single-value column is tagged Tags.ITEM",
    ),
    POSITIVE_HISTORY: Channel(
        fewest=1,
        is_list=True,
        is_categorical=True,
        tags=_HISTORY_TAGS,
        signs=_signs("sequence"),
        missing="no list column is tagged Tags.SEQUENCE",
    ),
    NEGATIVE_HISTORY: Channel(
        fewest=1,
        is_list=True,
        is_categorical=True,
        tags=_HISTORY_TAGS,
        missing='no list column is tagged "negative_history"',
    ),
    HISTORY_TIME_INTERVALS: Channel(
        fewest=0,
        most=1,
        is_list=True,
        tags=("sequence", "list", "time", "continuous"),
        aligned_with=POSITIVE_HISTORY,
        signs=_signs("sequence time"),
    ),
    TARGET_ITEM_LISTS: Channel(
        fewest=0, is_pooled=True, is_categorical=True, tags=("item", "categorical")
    ),
    USER_NUMERICAL: Channel(
        fewest=0,
        takes_vectors=True,
        tags=("user", "continuous"),
        signs=_signs("user continuous"),
    ),
    TARGET_ITEM_NUMERICAL: Channel(
        fewest=0,
        takes_vectors=True,
        tags=("item", "continuous"),
        signs=_signs("item continuous"),
    ),
}
_SHARED = (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)

CONTRACTS: dict[str, ChannelContract] = {
    name: ChannelContract(name, _SIM_FAMILY, _SHARED, first_id=1)
    for name in ("sim", "dien", "din", "eta", "sdim", "twin")
}
"""Family -> its contract, in the order in which schemas are held against them."""
CONTRACTS["dlrm"] = ChannelContract(
    "dlrm",
    {
        LABEL: LABEL_CHANNEL,
        CATEGORICAL: Channel(
            fewest=1,
            is_categorical=True,
            tags=("categorical",),
            signs=_signs("categorical"),
            missing="no column is tagged Tags.CATEGORICAL",
        ),
        NUMERICAL: Channel(fewest=0, tags=("continuous",), signs=_signs("numerical", "continuous")),
    },
    reads_any_schema=True,
)
CONTRACTS["dcnv2"] = replace(CONTRACTS["dlrm"], family="dcnv2", reads_any_schema=False)


def register_contract(contract: ChannelContract) -> None:
    """Make a family's channels known to specs and schemas.

    Raises:
        MerlinSimError: Where another contract has its name, or has one of its channels and counts
            ids otherwise: a dataset would not tell which of the two it is of.
    """
    known = CONTRACTS.get(contract.family)
    if known is not None and known != contract:
        raise MerlinSimError(f"the family {contract.family!r} has a contract of channels already.")
    for other in CONTRACTS.values():
        shared = set(other.categorical) & set(contract.categorical)
        if shared and other.first_id != contract.first_id:
            raise MerlinSimError(
                f"the family {contract.family!r} counts ids from {contract.first_id}, but "
                f"{other.family!r}, which has the channel {min(shared)!r} too, from "
                f"{other.first_id}."
            )
    CONTRACTS[contract.family] = contract


def contract_of(channels: Iterable[str]) -> ChannelContract:
    """Return the contract that a dataset with these channels is of: the first with its ids.

    >>> contract_of(["label", "positive_history"]).family, contract_of(["label"]).family
    ('sim', 'dlrm')
    """
    names = set(channels)
    for contract in CONTRACTS.values():
        if names & set(contract.categorical):
            return contract
    return _any_schemas()


def known_channel(name: str) -> Channel | None:
    """Return what the first family that has a channel of this name expects of it."""
    found = (c.channels[name] for c in CONTRACTS.values() if name in c.channels)
    return next(found, None)


def may_be_empty(channel: str) -> bool:
    """Tell whether some family takes this channel without any feature.

    >>> may_be_empty("user_features"), may_be_empty("label")
    (True, False)
    """
    known = (c.channels[channel] for c in CONTRACTS.values() if channel in c.channels)
    return any(entry.fewest == 0 for entry in known)


def channels_of(schema: Schema) -> dict[str, list[str]]:
    """Read the channels of the family that a Merlin schema's tags look like.

    A tag that is a channel's name decides. Otherwise, in the SIM family: a column tagged TARGET
    (or BINARY_CLASSIFICATION) is the label; lists tagged SEQUENCE are the positive history (the
    time intervals where tagged TIME too); single values tagged USER or ITEM are user and target
    item features. A schema that bears neither a channel's name nor a list of a family among its
    tags is read as DLRM's: CATEGORICAL and CONTINUOUS columns are its channels.

    Args:
        schema: The schema of a dataset's columns.

    Returns:
        Channel name -> column names, in the schema's order; channels without columns are left out.
    """
    return _contract_told_by(schema).read(schema)


def require_channels(schema: Schema, where: str, family: str | None = None) -> dict[str, list[str]]:
    """Do as :func:`channels_of` does; say which tags are missing where a channel is.

    Args:
        schema: The schema.
        where: What the message begins with.
        family: The family whose channels must be there; None for the one the tags look like.

    Raises:
        MerlinSimError: Where the family's channels are not complete.
    """
    contract = CONTRACTS[family] if family else _contract_told_by(schema)
    return contract.require(schema, where)


def _contract_told_by(schema: Schema) -> ChannelContract:
    told = (contract for contract in CONTRACTS.values() if contract.is_told_by(schema))
    return next(told, _any_schemas())


def _any_schemas() -> ChannelContract:
    return next(contract for contract in CONTRACTS.values() if contract.reads_any_schema)
