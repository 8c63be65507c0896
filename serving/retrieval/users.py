"""Users' histories from a dataset or a store, and how a model takes them. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...schemas.parquet import type_in_words
from ..encoder import EventEncoder
from ..event import CANDIDATES, HISTORY, Event
from ..histories.loading import KeptHistories
from ..histories.store import Reading, StoreError, key_text
from ..limits import Limits


@dataclass(frozen=True)
class UserHistory:
    """A user's keys and history."""

    user: dict[str, Any]
    """Raw keys of the user's columns, as the newest interaction has them."""
    items: list[Any]
    """Items as an event has them, raw keys or objects with keys, oldest first."""


class DatasetHistories:
    """The newest interactions that a dataset of a behaviour log keeps in ``history/``."""

    def __init__(self, directory: Path) -> None:
        self.kept = KeptHistories.open(directory)
        self.columns = self.kept.columns

    def some(self, most: int) -> list[UserHistory]:
        """Return the histories of some users, the first that are stored."""
        users: list[Any] = []
        with pq.ParquetFile(self.kept.files.paths[0]) as file:
            for batch in file.iter_batches(columns=[self.columns.user]):
                users = list(dict.fromkeys([*users, *batch.column(0).to_pylist()]))
                if len(users) >= most:
                    break
        return list(self.of(users[:most]).values())

    def keys(self, texts: Sequence[str]) -> list[Any]:
        """Return users' raw keys, of the type that the log has, of texts."""
        kind = pq.read_schema(self.kept.files.paths[0]).field(self.columns.user).type
        found = []
        for text in texts:
            try:
                found.append(pa.array([text]).cast(kind)[0].as_py())
            except pa.ArrowInvalid as error:
                raise MerlinSimError(
                    f"a user should be {type_in_words(kind)}, as in the log. Received: {text!r}"
                ) from error
        return found

    def of(self, users: Sequence[Any]) -> dict[Any, UserHistory]:
        """Return the history of each user who has one, by raw key."""
        found: dict[Any, UserHistory] = {}
        columns = self.columns
        of_users = (columns.user, *columns.user_features)  # a context is that of the request
        for path in self.kept.files.paths:
            table = self.kept.read(path, of_users, [(columns.user, "in", list(users))])
            for row in table.select([*of_users, columns.item]).to_pylist():
                item = row.pop(columns.item)
                history = found.setdefault(row[columns.user], UserHistory({}, []))
                history.user.update(row)
                history.items.append(item)
        return found


USER = "user"
"""How messages call a user's key."""


class StoreHistories:
    """Reads users from a store, as a model names them.

    A store knows a user by one key, the first of the model's columns of users. What the others
    have is given with the request, or not known.
    """

    newest = Limits.max_history
    """Interactions that are read of a user, all as items that were seen: a request stays short."""

    def __init__(self, store: Reading, encoder: EventEncoder) -> None:
        self._store = store
        self._columns = encoder.columns.users
        self._lookup = encoder.users[0] if self._columns else None

    def keys(self, texts: Sequence[str]) -> list[Any]:
        """Return users' raw keys, of the type that the model has, of texts."""
        if self._lookup is None or self._lookup.is_text:
            return list(texts)
        for text in texts:
            if not text.removeprefix("-").isdecimal():
                raise MerlinSimError(
                    f"a user should be a whole number, as in the log. Received: {text!r:.60}"
                )
        return [int(text) for text in texts]

    def is_known(self, user: Any) -> bool:
        """Say whether a user was there when the model's workflow was fitted."""
        return self._lookup is None or self._lookup.look_up(user, USER) > 0

    def of(self, users: Sequence[Any]) -> dict[Any, UserHistory]:
        """Return the history of each user who has one, by raw key."""
        found = {}
        for user, history in zip(users, self.read_all(users), strict=True):
            if isinstance(history, StoreError):
                raise history
            if history is not None:
                found[user] = history
        return found

    def read_all(self, users: Sequence[Any]) -> list[UserHistory | StoreError | None]:
        """Return the history of each user, read together; None of one who has none."""
        keys = [key_text(user, USER) for user in users]
        histories: list[UserHistory | StoreError | None] = []
        for user, kept in zip(users, self._store.read_all(keys, self.newest), strict=True):
            if isinstance(kept, StoreError):
                histories.append(kept)
            else:
                named = {column.name: user for column in self._columns[:1]}
                histories.append(UserHistory(named, kept.items) if kept.items else None)
        return histories


def user_event(encoder: EventEncoder, history: UserHistory, facts: Mapping[str, Any]) -> Event:
    """Return a user without candidates as a model's encoder takes one.

    Facts are fields that the model reads besides keys, and keys that the history does not have.
    """
    users = {
        column.name: history.user.get(column.name, facts.get(column.name))
        for column in encoder.columns.event_keys
    }
    fields = (*encoder.numbers.user_fields, *encoder.time_fields)
    given = {name: facts[name] for name in fields if name in facts}
    newest = history.items[-encoder.newest :]
    return encoder.parse({**users, **given, HISTORY: newest, CANDIDATES: []})
