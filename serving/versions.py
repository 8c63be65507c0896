"""Which version of a model should answer whom: the current one, or a canary of some users."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..foundation.exceptions import MerlinSimError
from ..foundation.requests import RequestError

if TYPE_CHECKING:
    from .encoder import EncodedEvent, Encoder
    from .scorer import Scorer
    from .servable import Servable


class Canary(NamedTuple):
    """A version that some users meet."""

    number: int
    share: float
    """Of the users, between 0 and 1."""


def meets_canary(user: Any, canary: Canary) -> bool:
    """Return whether a user meets a canary: always the same, and other users for each version.

    >>> meets_canary("A1", Canary(8, 0.5)) == meets_canary("A1", Canary(8, 0.5))
    True
    >>> meets_canary(5, Canary(8, 0.5)) == meets_canary("5", Canary(8, 0.5))
    True
    """
    text = f"{canary.number}:{user}"
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < canary.share * 2**64


def user_of_events(servable: Servable) -> str:
    """Name the field by which the users of events are distinguished."""
    users = servable.columns.users
    if servable.takes_rows or not users:
        raise MerlinSimError(
            f"{servable.path}: a canary is chosen by users, and its requests have none."
        )
    return str(users[0].name)


def parse_canary(text: str) -> Canary:
    """Read VERSION:SHARE.

    >>> parse_canary("8:0.05")
    Canary(number=8, share=0.05)
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


@dataclass(frozen=True)
class ServedVersion:
    """An exported model, of a registry or by itself."""

    servable: Path
    version: int | None = None
    """Its number in the registry; None where there are no versions."""
    canary: Canary | None = None
    canary_servable: Path | None = None

    @property
    def number(self) -> int:
        """By which Triton knows it."""
        return self.version or 1

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where all that it needs lies."""
        return tuple(path for path in (self.servable, self.canary_servable) if path is not None)

    def open(self) -> dict[int, Servable]:
        """Open the exported models, by their versions, the current one first."""
        from .servable import Servable

        numbers = (self.number, *([] if self.canary is None else [self.canary.number]))
        return {n: Servable.open(path) for n, path in zip(numbers, self.paths, strict=True)}

    def __str__(self) -> str:
        """Name the version, and the other one where some users meet it."""
        if self.canary is None:
            return str(self.number)
        return (
            f"{self.number} (version {self.canary.number} for {self.canary.share:g} of the users)"
        )


@dataclass(frozen=True, eq=False)
class LoadedVersion:
    """A version of a model, loaded."""

    number: int
    encoder: Encoder
    scorer: Scorer


class VersionedEvent(NamedTuple):
    """An event, and the version that has to answer."""

    version: LoadedVersion
    event: EncodedEvent


@dataclass(frozen=True)
class Versions:
    """The current version, and perhaps another one that a share of the users meet."""

    current: LoadedVersion
    """Answers all others."""
    canary: LoadedVersion | None = None
    share: float = 0.0
    """Of the users who meet the canary."""
    user: str = ""
    """The name under which an event has its user."""

    def encode_all(self, events: Sequence[Any]) -> list[VersionedEvent | Exception]:
        """Make ids of events, each by the version that its user meets; one may be wrong alone.

        The histories that events do not bring are read together.
        """
        found: list[VersionedEvent | Exception] = [RequestError("no event")] * len(events)
        of_events = [self._version_of(fields) for fields in events]
        for version in self.all:
            indices = [index for index, of in enumerate(of_events) if of is version]
            whole = version.encoder.with_histories([events[index] for index in indices])
            for index, fields in zip(indices, whole, strict=True):
                try:
                    if isinstance(fields, Exception):
                        raise fields
                    event = version.encoder.encode(version.encoder.parse(fields))
                    found[index] = VersionedEvent(version, event)
                except Exception as error:  # of this event alone
                    found[index] = error
        return found

    def _version_of(self, fields: Any) -> LoadedVersion:
        if self.canary is None or not isinstance(fields, Mapping):
            return self.current
        key = fields.get(self.user)
        if key is None or not meets_canary(key, Canary(self.canary.number, self.share)):
            return self.current
        return self.canary

    @property
    def all(self) -> tuple[LoadedVersion, ...]:
        """The versions that are there."""
        return (self.current,) if self.canary is None else (self.current, self.canary)
