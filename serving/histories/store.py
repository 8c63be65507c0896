"""Interactions as they are kept, and what a store of them can do, whatever keeps them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ...foundation.exceptions import MerlinSimError
from ...foundation.requests import RequestError, check_fields, check_storable

USER, ITEM, TIME = "user", "item", "time"
LARGEST_TIME = 1 << 53
"""Times are compared as floats of 64 bits, in which larger whole numbers fall together."""
LONGEST_KEY = 1 << 12
"""Characters of a user's or an item's key, as JSON."""


class Interaction(NamedTuple):
    """One interaction of a user."""

    user: str
    """The user's key as JSON, so that 7 and "7" are two users."""
    item: str
    """The item as JSON: its key, or an object with keys by the names of their domains."""
    time: float | None = None
    """When. Without one it stands after all that its user did before."""


def parse_interaction(fields: Any) -> Interaction:
    """Check the form of an interaction.

    >>> parse_interaction({"user": "A1", "item": {"item_id": "B7"}, "time": 12})
    Interaction(user='"A1"', item='{"item_id":"B7"}', time=12)
    """
    check_fields(fields, (USER, ITEM), (TIME,))
    return Interaction(
        key_text(fields[USER], USER), _item_text(fields[ITEM]), check_time(fields.get(TIME))
    )


def as_text(value: Any) -> str:
    """A key, an item or a time as JSON, as stores keep it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def key_text(key: Any, where: str) -> str:
    """A key as it is kept: a text or a whole number that a log can hold.

    >>> key_text(7, "user"), key_text("7", "user")
    ('7', '"7"')
    """
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise RequestError(f"{where}: expected a text or a whole number, received {key!r:.60}")
    check_storable(key, where)
    text = as_text(key)
    if len(text) > LONGEST_KEY:
        raise RequestError(
            f"{where}: expected a key of at most {LONGEST_KEY:,} characters, received {len(text):,}"
        )
    return text


def _item_text(item: Any) -> str:
    if not isinstance(item, Mapping):
        return key_text(item, ITEM)
    if not item:
        raise RequestError(f"{ITEM}: expected at least one key, received {{}}")
    keys = (f"{as_text(name)}:{key_text(key, f'{ITEM}.{name}')}" for name, key in item.items())
    return "{" + ",".join(keys) + "}"


def check_time(time: Any) -> float | None:
    """A time as it is kept: a number that can be compared with others."""
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
        raise RequestError(f"{TIME}: expected a number, received {time!r:.60}")
    if abs(time) > LARGEST_TIME:
        raise RequestError(
            f"{TIME}: expected a number between -2^53 and 2^53, received {time!r:.60}: "
            "count in microseconds or longer"
        )
    kept: float = time  # a whole number stays one
    return kept


FORMAT = 2


class StoreError(MerlinSimError):
    """A store that cannot be opened, read or written."""


class History(NamedTuple):
    """A user's interactions, oldest first."""

    items: list[Any]
    """Keys, or objects with keys, as a raw event has them."""
    times: list[float | None]


class SummedHistory(NamedTuple):
    """A user's history as it is kept for a model that sums it up."""

    newest: History
    summary: bytes | None
    """What the model made of all interactions but those in ``since``; None for nothing yet."""
    since: list[Any]
    """Items of the interactions that are not in the summary, in the order in which they came."""
    mark: tuple[int, int] | None
    """By which a store knows them again; None where nothing is kept for the model."""


class Filling(Protocol):
    """Takes what a store is filled with."""

    def append(self, interactions: Sequence[Interaction]) -> None:
        """Keep interactions, of any users: all of them or, where it fails, none."""


class Reading(Protocol):
    """Knows what users did."""

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """Return the newest interactions of each user, read together; none of an unknown user.

        Args:
            users: Keys as :func:`~merlin_sim.serving.histories.store.key_text` gives them.
            newest: How many of each at most.

        Returns:
            For a user whose history cannot be read, the error.
        """

    def read_summed(
        self, users: Sequence[str], newest: int, model: str
    ) -> list[SummedHistory | StoreError]:
        """Return the newest interactions of each user, and what is kept of the whole history.

        Where a user has more than the newest, and nothing is kept for this model, the whole history
        is marked as not in a summary, and another model's summary is forgotten.

        Args:
            users: As of :meth:`read_all`.
            newest: The same.
            model: Whose summaries are meant.
        """

    def keep_summary(self, user: str, model: str, summary: bytes, mark: tuple[int, int]) -> None:
        """Keep a summary in which all interactions are that were read with a mark.

        Nothing is kept where another one was meanwhile, or the user forgotten.
        """


class HistoryStore(Filling, Reading, Protocol):
    """Keeps the interactions of users, in the order of their times.

    Those of one time stand as they came. What :meth:`append` has returned from is kept, though the
    process, or that of the store, be killed. Several processes, and threads, may use one store.
    """

    def read(self, user: str, newest: int) -> History:
        """Return the newest interactions of one user."""
        (history,) = self.read_all([user], newest)
        if isinstance(history, StoreError):
            raise history
        return history

    def delete(self, user: str) -> int:
        """Forget a user; return how many interactions were kept."""

    def users(self) -> int:
        """Count the users."""

    def some_users(self) -> list[str]:
        """Return keys of some users, numbers and texts if there are many of both; none if empty."""

    def load(self, overwrite: bool) -> AbstractContextManager[Filling]:
        """Fill the store: what is appended within the block is kept whole or not at all.

        ``overwrite`` replaces what is there; else the store should be empty.
        """

    def close(self) -> None:
        """Close files and connections."""
