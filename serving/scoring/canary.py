"""A version that some users meet, always the same ones. Imports nothing that is large."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from ...foundation.exceptions import MerlinSimError
from ..servables.servable import Servable


class Canary(NamedTuple):
    """A version that some users meet."""

    number: int
    share: float
    """Of the users, between 0 and 1."""


def meets_canary(user: Any, canary: Canary) -> bool:
    """Tell whether a user meets a canary: always the same, and other users for each version.

    >>> meets_canary("A1", Canary(8, 0.5)) == meets_canary("A1", Canary(8, 0.5))
    True
    >>> meets_canary(5, Canary(8, 0.5)) == meets_canary("5", Canary(8, 0.5))
    True

    Args:
        user: The raw key.
        canary: Its version and share.
    """
    text = f"{canary.number}:{user}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < canary.share * 2**64


def user_of_events(servable: Servable) -> str:
    """Name the field by which the users of events are told apart.

    Raises:
        MerlinSimError: Where there is none.
    """
    users = servable.columns.users
    if servable.takes_rows or not users:
        raise MerlinSimError(
            f"{servable.path}: a canary goes by users, and its requests have none."
        )
    return str(users[0].name)


def parse_canary(text: str) -> Canary:
    """Read VERSION:SHARE.

    >>> parse_canary("8:0.05")
    Canary(number=8, share=0.05)

    Raises:
        MerlinSimError: Where it is something else.
    """
    number, _, share = text.partition(":")
    try:
        found = Canary(int(number), float(share))
    except ValueError:
        found = Canary(0, 0.0)
    if found.number < 1 or not 0 < found.share < 1:
        raise MerlinSimError(
            "`canary` should be a version and a share of the users between 0 and 1, as 8:0.05. "
            f"Received: {text!r}"
        )
    return found
