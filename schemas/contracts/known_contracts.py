"""The contracts that are known: those of the two kinds of dataset, and those of the families.

What a dataset is, is known here, below the models: rooms that import no model make datasets of
behaviour and of plain rows. A family says which of the two it takes, under its own name, or
brings a contract of its own, and is registered with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...foundation.exceptions import MerlinSimError
from ..channel_contract import Channel, ChannelContract
from .behaviour import BEHAVIOUR
from .plain_rows import PLAIN_ROWS

if TYPE_CHECKING:
    from merlin.schema import Schema

CONTRACTS: dict[str, ChannelContract] = {kind.name: kind for kind in (BEHAVIOUR, PLAIN_ROWS)}
"""Kind of dataset or name of a family -> its contract, in the order in which they are tried."""

FAMILIES = "merlin_sim.models.families.registry"
"""What makes the package's own families known, once one is asked for by its name: a dataset may be
opened for a family before any module of the models, which stand above this room, is imported."""


def register_contract(family: str, contract: ChannelContract) -> None:
    """Make a family's channels known to specs and schemas.

    Raises:
        MerlinSimError: Where another contract has its name, or has one of its channels and counts
            ids otherwise: a dataset would not tell which of the two it is of.
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
    """Return the contract of a family.

    Raises:
        MerlinSimError: Where no family of this name is known.
    """
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
    """Tell whether some contract takes this channel without any feature.

    >>> may_be_empty("user_features"), may_be_empty("label")
    (True, False)
    """
    known = (c.channels[channel] for c in CONTRACTS.values() if channel in c.channels)
    return any(entry.fewest == 0 for entry in known)


def channels_of(schema: Schema) -> dict[str, list[str]]:
    """Read the channels of the contract that a Merlin schema's tags look like.

    A tag that is a channel's name decides. Otherwise, of behaviour: a column tagged TARGET (or
    BINARY_CLASSIFICATION) is the label; lists tagged SEQUENCE are the positive history (the time
    intervals where tagged TIME too); single values tagged USER or ITEM are user and target item
    features. A schema that bears neither a channel's name nor a list of a contract among its tags
    is read as plain rows: CATEGORICAL and CONTINUOUS columns are its channels.

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
        family: The family whose channels must be there; None for what the tags look like.

    Raises:
        MerlinSimError: Where the channels are not complete.
    """
    contract = contract_named(family) if family else _contract_told_by(schema)
    return contract.require(schema, where)


def _contract_told_by(schema: Schema) -> ChannelContract:
    told = (contract for contract in CONTRACTS.values() if contract.is_told_by(schema))
    return next(told, PLAIN_ROWS)
