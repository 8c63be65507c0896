"""Two versions of a model side by side, of which each user always meets the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..events.event_encoder import EncodedEvent
from ..events.row_encoder import Encoder
from ..limits import RequestError
from .canary import Canary, meets_canary

if TYPE_CHECKING:
    from .scorer import Scorer  # imports TensorFlow


@dataclass(frozen=True, eq=False)
class Version:
    """A version of a model, loaded."""

    number: int
    encoder: Encoder
    scorer: Scorer


class VersionedEvent(NamedTuple):
    """An event, and the version that has to answer."""

    version: Version
    event: EncodedEvent


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

    def encode_all(self, events: Sequence[Any]) -> list[VersionedEvent | Exception]:
        """Make ids of events, each by the version that its user meets; one may be wrong alone.

        The histories that events do not bring are read together.

        Returns:
            What is wrong with an event in its place.
        """
        found: list[VersionedEvent | Exception] = [RequestError("no event")] * len(events)
        of_events = [self._version_of(fields) for fields in events]
        for version in self.all:
            places = [place for place, of in enumerate(of_events) if of is version]
            whole = version.encoder.with_histories([events[place] for place in places])
            for place, fields in zip(places, whole, strict=True):
                found[place] = _encoded(version, fields)
        return found

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


def _encoded(version: Version, fields: Any) -> VersionedEvent | Exception:
    if isinstance(fields, Exception):
        return fields
    try:
        return VersionedEvent(version, version.encoder.encode(version.encoder.parse(fields)))
    except Exception as error:  # of this event alone
        return error
