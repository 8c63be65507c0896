"""Two versions of a model side by side, of which each user always meets the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...foundation.exceptions import MerlinSimError
from ..events.event_encoder import EncodedEvent
from ..events.row_encoder import Encoder
from ..servables.servable import Servable

if TYPE_CHECKING:
    from .scorer import Scorer  # imports TensorFlow


@dataclass(frozen=True, eq=False)
class Version:
    """A version of a model, loaded."""

    number: int
    encoder: Encoder
    scorer: Scorer


class Asked(NamedTuple):
    """An event, and the version that has to answer."""

    version: Version
    event: EncodedEvent


class Canary(NamedTuple):
    """A version that some users meet."""

    number: int
    share: float
    """Of the users, between 0 and 1."""


class Versions:
    """The current version, and beside it one that a share of the users meet.

    Args:
        current: Answers all others.
        canary: The other version; None where there is none.
        share: Of the users who meet it.
        user: The name under which an event has its user.
    """

    def __init__(
        self, current: Version, canary: Version | None = None, share: float = 0.0, user: str = ""
    ) -> None:
        """Remember both."""
        self.current, self.canary = current, canary
        self._share, self._user = share, user

    def encode(self, fields: Any) -> Asked:
        """Make ids of an event, by the version that its user meets.

        Raises:
            RequestError: Where the event is not what it should be.
        """
        version = self._version_of(fields)
        return Asked(version, version.encoder.encode(version.encoder.parse(fields)))

    def _version_of(self, fields: Any) -> Version:
        if self.canary is None or not isinstance(fields, Mapping):
            return self.current
        key = fields.get(self._user)
        if key is None or not meets_canary(key, Canary(self.canary.number, self._share)):
            return self.current
        return self.canary

    @property
    def all(self) -> tuple[Version, ...]:
        """The versions that are there."""
        return (self.current,) if self.canary is None else (self.current, self.canary)


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
