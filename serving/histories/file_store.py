"""Histories in one file: SQLite, as Python has it, with a log that is written ahead.

An interaction is a row, in the order of its user's times. A file system that several machines share
does not do: SQLite keeps what it knows of such a file's readers in memory.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from .store import (
    Filling,
    History,
    HistoryStore,
    Interaction,
    StoreError,
    SummedHistory,
    as_text,
)

Found = TypeVar("Found")
MOST = (1 << 63) - 1
"""No store has so many interactions."""
FORMAT = 3
PATIENCE_SECONDS = 30.0
"""How long a writer waits for another process's."""
SUMMARY_SECONDS = 0.5
"""The same where a request waits for a model: what a summary lacks can be read as well."""
KEEP = "keep"
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID",
    # By `moment` rows are compared; `time`, as JSON, is what was given.
    "CREATE TABLE interactions (user TEXT, moment REAL, number INTEGER, time TEXT, item TEXT,"
    " PRIMARY KEY (user, moment, number)) WITHOUT ROWID",
    # All interactions of a user but those in `since` up to `through`, which are deleted.
    "CREATE TABLE summaries (user TEXT PRIMARY KEY, model TEXT, summary BLOB, through INTEGER)"
    " WITHOUT ROWID",
    "CREATE TABLE since (number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT, item TEXT)",
    "CREATE INDEX since_of_user ON since (user, number)",
)
_ABOUT = "INSERT INTO about VALUES (?, ?)"
_NEWEST = "FROM interactions WHERE user = ? ORDER BY moment DESC, number DESC LIMIT ?"
_LAST = f"SELECT moment, time {_NEWEST}"
_READ = (
    f"SELECT group_concat(item, ','), group_concat(time, ',') FROM (SELECT item, time {_NEWEST})"
)
"""One row for a whole history: SQLite joins a thousand texts sooner than Python takes as many."""
_INSERT = (
    "INSERT INTO interactions VALUES (:user, :moment,"
    " (SELECT coalesce(max(number), 0) + 1 FROM interactions"
    " WHERE user = :user AND moment = :moment), :time, :item)"
)
_ADD_SINCE = (
    "INSERT INTO since (user, item) SELECT :user, :item"
    " WHERE EXISTS (SELECT 1 FROM summaries WHERE user = :user)"
)
_ALL_SINCE = (
    "INSERT INTO since (user, item)"
    " SELECT user, item FROM interactions WHERE user = ? ORDER BY moment, number"
)
_BEGIN_SUMMARY = (
    "INSERT OR REPLACE INTO summaries"
    " SELECT user, ?, NULL, min(number) - 1 FROM since WHERE user = ? GROUP BY user"
)
_READ_SUMMARY = (
    "SELECT summary, through, (SELECT group_concat(item, ',') FROM"
    " (SELECT item FROM since WHERE user = :user ORDER BY number)),"
    " (SELECT max(number) FROM since WHERE user = :user)"
    " FROM summaries WHERE user = :user AND model = :model"
)
_KEEP_SUMMARY = (
    "UPDATE summaries SET summary = ?, through = ? WHERE user = ? AND model = ? AND through = ?"
)
_DELETE_SINCE = "DELETE FROM since WHERE user = ? AND number <= ?"
_DELETE_OLDER = (
    "DELETE FROM interactions WHERE user = ? AND (moment, number) <"
    f" (SELECT moment, number {_NEWEST} OFFSET ?)"
)


class FileStore(HistoryStore):
    """See :class:`~merlin_sim.serving.histories.store.HistoryStore`."""

    def __init__(self, path: Path, keep: int | None, create: bool) -> None:
        self.path = path
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._writing = threading.RLock()
        self._is_loading = False
        self._is_busy = False
        """Whether another process was writing when the last summary should have been written."""
        if not path.is_file() and not create:
            raise StoreError(f"{path}: no such file: `merlin-sim histories load` makes it.")
        with self._errors():
            if create:
                self._make(keep)
            about = dict(self._connection.execute("SELECT name, value FROM about"))
        if about.get("format") != FORMAT:
            raise StoreError(
                f"{path}: expected a store of form {FORMAT}, found {about.get('format')}. Remove "
                "it, or name another file: `merlin-sim histories load` makes one."
            )
        self.keep: int | None = about.get(KEEP)
        if keep not in (None, self.keep):
            raise StoreError(
                f"{path}: was made to keep {self.keep or 'all'} interactions of a user, received "
                f"{keep}."
            )

    def append(self, interactions: Sequence[Interaction]) -> None:
        """See HistoryStore."""
        with self._errors(), self._transaction() as connection:
            for user, item, time in interactions:
                moment, text = time, as_text(time)
                if time is None:  # it follows what came before; nothing that had a time may have
                    last = connection.execute(_LAST, (user, 1)).fetchone()
                    moment, text = last or (-math.inf, text)
                row = {"user": user, "moment": moment, "time": text, "item": item}
                connection.execute(_INSERT, row)
                connection.execute(_ADD_SINCE, row)
            if self.keep is not None:
                for user in {interaction.user for interaction in interactions}:
                    connection.execute(_DELETE_OLDER, (user, user, 1, self.keep - 1))

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """See Reading."""
        return _of_each(users, lambda user: self._read(user, newest))

    def _read(self, user: str, newest: int) -> History:
        with self._errors():
            joined = self._connection.execute(_READ, (user, max(0, newest))).fetchone()
            items, times = (json.loads(f"[{texts or ''}]")[::-1] for texts in joined)
            return History(items, times)

    def read_summed(
        self, users: Sequence[str], newest: int, model: str
    ) -> list[SummedHistory | StoreError]:
        """See Reading."""
        return _of_each(users, lambda user: self._read_summed(user, newest, model))

    def _read_summed(self, user: str, newest: int, model: str) -> SummedHistory:
        history = self._read(user, newest)
        if not history.items:
            return SummedHistory(history, None, [], None)
        with self._errors():
            kept = self._kept_summary(user, model)
            if kept is None and len(history.items) < min(newest, self.keep or newest):
                return SummedHistory(history, None, history.items, None)
        if kept is None:
            try:
                kept = self._begin_summary(user, model)
            except StoreError:  # another process is writing
                return SummedHistory(history, None, self._read(user, MOST).items, None)
        if kept is None:  # it was forgotten meanwhile
            return SummedHistory(History([], []), None, [], None)
        summary, through, items, last = kept
        with self._errors():
            since = json.loads(f"[{items or ''}]")
        return SummedHistory(history, summary, since, (through, last or through))

    def _begin_summary(self, user: str, model: str) -> Any:
        """Mark the whole history as not in a summary, unless another one has meanwhile."""
        with self._summary_transaction() as connection:
            if self._kept_summary(user, model) is None:
                connection.execute(_DELETE_SINCE, (user, MOST))
                connection.execute(_ALL_SINCE, (user,))
                connection.execute(_BEGIN_SUMMARY, (model, user))
            return self._kept_summary(user, model)

    def _kept_summary(self, user: str, model: str) -> Any:
        named = {"user": user, "model": model}
        return self._connection.execute(_READ_SUMMARY, named).fetchone()

    def keep_summary(self, user: str, model: str, summary: bytes, mark: tuple[int, int]) -> None:
        """See Reading."""
        was, through = mark
        with self._summary_transaction() as connection:
            row = (summary, through, user, model, was)
            if connection.execute(_KEEP_SUMMARY, row).rowcount:
                connection.execute(_DELETE_SINCE, (user, through))

    def delete(self, user: str) -> int:
        """See HistoryStore; the file is written anew, as pages may hold copies of what moved."""
        with self._errors():
            connection = self._connection
            with self._transaction():
                for table in ("summaries", "since"):
                    connection.execute(f"DELETE FROM {table} WHERE user = ?", (user,))
                deleted = connection.execute("DELETE FROM interactions WHERE user = ?", (user,))
            connection.execute("VACUUM")
            # The log that is written ahead has what was appended, too. A reader may hold it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return int(deleted.rowcount)

    def users(self) -> int:
        """See HistoryStore."""
        with self._errors():
            count = self._connection.execute("SELECT count(DISTINCT user) FROM interactions")
            return int(count.fetchone()[0])

    def some_users(self) -> list[str]:
        """See HistoryStore; in the order of keys all texts stand before all numbers."""
        with self._errors():
            ends = (
                "SELECT (SELECT min(user) FROM interactions), (SELECT max(user) FROM interactions)"
            )
            return [user for user in self._connection.execute(ends).fetchone() if user is not None]

    @contextmanager
    def load(self, overwrite: bool) -> Iterator[Filling]:
        """See HistoryStore; others read what was there until the block ends."""
        with self._errors(), self._transaction() as connection:
            if overwrite:
                for table in ("interactions", "summaries", "since"):
                    connection.execute(f"DELETE FROM {table}")
            elif connection.execute("SELECT 1 FROM interactions LIMIT 1").fetchone():
                raise StoreError(f"{self.path}: expected an empty store, or `--overwrite`.")
            self._is_loading = True
            try:
                yield self
            finally:
                self._is_loading = False

    def close(self) -> None:
        """See HistoryStore."""
        while self._opened:
            self._opened.pop().close()
        self._own = threading.local()

    def _make(self, keep: int | None) -> None:
        """Make the tables where they are missing; of several who come at once, one does."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # What people did: for this user alone to read. SQLite's other files are made alike.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._connection.execute("PRAGMA journal_mode = WAL")
        with self._transaction() as connection:
            if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
                return
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(_ABOUT, ("format", FORMAT))
            if keep is not None:
                connection.execute(_ABOUT, (KEEP, keep))

    @property
    def _connection(self) -> sqlite3.Connection:
        """This thread's own."""
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.path, PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
            )
            # What is committed has been given to the system: no process that is killed takes it
            # along. A machine that loses its power may, of the last moments.
            connection.execute("PRAGMA synchronous = NORMAL")
            self._own.connection = connection
            self._opened.append(connection)
        return connection

    @contextmanager
    def _transaction(self, patience: float = PATIENCE_SECONDS) -> Iterator[sqlite3.Connection]:
        with self._writing:
            connection = self._connection
            if self._is_loading:
                yield connection
                return
            connection.execute(f"PRAGMA busy_timeout = {1000 * patience:.0f}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _summary_transaction(self) -> Iterator[sqlite3.Connection]:
        """While another process writes for long, the first to come waits for it, and no other."""
        with self._writing:  # of several threads too
            patience = 0.0 if self._is_busy else SUMMARY_SECONDS
            try:
                with self._errors(), self._transaction(patience) as connection:
                    yield connection
                self._is_busy = False
            except StoreError:
                self._is_busy = True
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreError(f"{self.path}: expected a store of histories ({error}).") from error


def _of_each(users: Sequence[str], read: Callable[[str], Found]) -> list[Found | StoreError]:
    """Read users one by one, each with its own reason why that cannot be."""
    found: list[Found | StoreError] = []
    for user in users:
        try:
            found.append(read(user))
        except StoreError as error:
            found.append(error)
    return found
