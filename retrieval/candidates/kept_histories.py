"""The histories that a store keeps: what users did up to this moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...histories.interaction import key_text
from ...histories.store import Reading, StoreError
from ...serving.events.event_encoder import EventEncoder
from ...serving.limits import Limits
from .histories import History

USER = "user"
"""How messages call a user's key."""


class StoreHistories:
    """Reads users from a store, as a model names them.

    A store knows a user by one key, the first of the model's columns of users. What the others
    have is told by whoever asks, or not known.

    Args:
        store: Keeps the interactions.
        encoder: Of the model whose columns of users are meant.
    """

    newest = Limits.max_history
    """Interactions that are read of a user: all of them are items that were seen."""

    def __init__(self, store: Reading, encoder: EventEncoder) -> None:
        """Remember both."""
        self._store = store
        self._columns = encoder.columns.users
        self._lookup = encoder.users[0] if encoder.users else None

    def keys(self, texts: Sequence[str]) -> list[Any]:
        """Return users' raw keys, of the type that the model has, of texts.

        Raises:
            MerlinSimError: Naming the first that is none.
        """
        if self._lookup is None or self._lookup.is_text:
            return list(texts)
        for text in texts:
            if not text.removeprefix("-").isdecimal():
                raise MerlinSimError(
                    f"a user should be a whole number, as in the log. Received: {text!r:.60}"
                )
        return [int(text) for text in texts]

    def is_known(self, user: Any) -> bool:
        """Say whether a user was there when the model's workflow was fitted.

        Raises:
            RequestError: Where it is no key of a user.
        """
        return self._lookup is None or self._lookup.look_up(user, USER) > 0

    def of(self, users: Sequence[Any]) -> dict[Any, History]:
        """Return the history of each user who has one, by raw key.

        Raises:
            InteractionError: Where one is no key.
            StoreError: Where the store cannot be read.
        """
        found = {}
        for user, history in zip(users, self.read_all(users), strict=True):
            if isinstance(history, StoreError):
                raise history
            if history is not None:
                found[user] = history
        return found

    def read_all(self, users: Sequence[Any]) -> list[History | StoreError | None]:
        """Return the history of each user, read together; None of one who has none.

        Raises:
            InteractionError: Where one is no key.
        """
        keys = [key_text(user, USER) for user in users]
        told: list[History | StoreError | None] = []
        for user, kept in zip(users, self._store.read_all(keys, self.newest), strict=True):
            if isinstance(kept, StoreError):
                told.append(kept)
            else:
                named = {column.name: user for column in self._columns[:1]}
                told.append(History(named, kept.items) if kept.items else None)
        return told
