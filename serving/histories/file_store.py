"""Histories in one file: SQLite, as Python has it, with a log that is written ahead.

A user's history is rows of up to ``BLOCK`` interactions, so that a thousand of them are read in
sixteen steps, and one more is the end of a short text. A file system that several machines share
does not do: SQLite keeps what it knows of such a file's readers in memory.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .store import FORMAT, Filling, History, Interaction, StoreError, as_text, only

BLOCK = 64
"""Interactions of a full row; all rows of a user are full but the last."""
PATIENCE_SECONDS = 30.0
"""How long a writer waits for another process's."""
KEEP = "keep"
_TABLES = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID",
    "CREATE TABLE blocks (user TEXT, number INTEGER, length INTEGER, newest NUMERIC, items TEXT,"
    " times TEXT, UNIQUE (user, number))",
)
_ABOUT = "INSERT INTO about VALUES (?, ?)"
_LAST = "SELECT {} FROM blocks WHERE user = ? ORDER BY number DESC"
_EXTEND = (
    "UPDATE blocks SET length = length + ?, newest = ?, items = items || ',' || ?,"
    " times = times || ',' || ? WHERE user = ? AND number = ?"
)


class Entry(NamedTuple):
    """An interaction of a user who is known."""

    time: float | None
    item: str
    """As JSON."""


def in_order(new: Sequence[Entry], newest: float | None) -> list[Entry]:
    """Put interactions in the order of their times; one without a time follows what came before.

    >>> in_order([Entry(5, "a"), Entry(None, "b"), Entry(3, "c")], 4)
    [Entry(time=3, item='c'), Entry(time=5, item='a'), Entry(time=5, item='b')]

    Args:
        new: As they came.
        newest: The newest time of their user's before; None where it has none.
    """
    timed = []
    for entry in new:
        timed.append(Entry(newest if entry.time is None else entry.time, entry.item))
        newest = max(newest, timed[-1].time, key=_moment)
    return sorted(timed, key=lambda entry: _moment(entry.time))


def _moment(time: float | None) -> float:
    """What is compared. What has no time came before anybody gave one."""
    return -math.inf if time is None else time


class FileStore:
    """See :class:`~merlin_sim.serving.histories.store.HistoryStore`."""

    def __init__(self, path: Path, keep: int | None, create: bool) -> None:
        """Open the file, or make it."""
        self.path = path
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._writing = threading.RLock()
        self._is_loading = False
        if not path.is_file() and not create:
            raise StoreError(f"{path}: no such file: `merlin-sim histories load` makes it.")
        with self._errors():
            if create:
                self._make(keep)
            about = dict(self._connection.execute("SELECT name, value FROM about"))
        if about.get("format") != FORMAT:
            raise StoreError(
                f"{path}: expected a store of form {FORMAT}, found {about.get('format')}."
            )
        self.keep: int | None = about.get(KEEP)
        if keep not in (None, self.keep):
            raise StoreError(
                f"{path}: was made to keep {self.keep or 'all'} interactions of a user, received "
                f"`keep` = {keep}."
            )

    def append(self, interactions: Sequence[Interaction]) -> None:
        """See HistoryStore."""
        by_user: dict[str, list[Interaction]] = {}
        for interaction in interactions:
            by_user.setdefault(interaction.user, []).append(interaction)
        with self._errors(), self._transaction() as connection:
            for user, own in by_user.items():
                self._append_to(connection, user, own)

    def read(self, user: str, newest: int) -> History:
        """See HistoryStore."""
        return only(self.read_all([user], newest))

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """See Reading."""
        found: list[History | StoreError] = []
        for user in users:
            try:
                found.append(self._read(user, newest))
            except StoreError as error:
                found.append(error)
        return found

    def _read(self, user: str, newest: int) -> History:
        items: list[str] = []
        times: list[str] = []
        with self._errors():
            rows = self._connection.execute(_LAST.format("items, times"), (user,))
            while (len(items) - 1) * BLOCK < newest and (row := rows.fetchone()):
                items.insert(0, row[0])  # all rows but the first of these are full
                times.insert(0, row[1])
            rows.close()
            first = max(0, sum(text.count(",") for text in times) + len(times) - newest)
            return History(_list(items)[first:], _list(times)[first:])

    def delete(self, user: str) -> int:
        """See HistoryStore; the bytes are overwritten."""
        with self._errors():
            connection = self._connection
            connection.execute("PRAGMA secure_delete = ON")
            with self._transaction():
                lengths = "SELECT coalesce(sum(length), 0) FROM blocks WHERE user = ?"
                (count,) = connection.execute(lengths, (user,)).fetchone()
                connection.execute("DELETE FROM blocks WHERE user = ?", (user,))
            # The log that is written ahead has what was appended, too. A reader may hold it.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return int(count)

    def users(self) -> int:
        """See HistoryStore."""
        with self._errors():
            count = self._connection.execute("SELECT count(DISTINCT user) FROM blocks")
            return int(count.fetchone()[0])

    @contextmanager
    def load(self, overwrite: bool) -> Iterator[Filling]:
        """See HistoryStore; others read what was there until the block ends."""
        with self._errors(), self._transaction() as connection:
            if overwrite:
                connection.execute("DELETE FROM blocks")
            elif connection.execute("SELECT 1 FROM blocks LIMIT 1").fetchone():
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
        self._connection.execute("PRAGMA page_size = 8192")  # of five full rows
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
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            connection = self._connection
            if self._is_loading:
                yield connection
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError) as error:
            raise StoreError(f"{self.path}: expected a store of histories ({error}).") from error

    def _append_to(
        self, connection: sqlite3.Connection, user: str, given: list[Interaction]
    ) -> None:
        columns = "number, length, newest"
        number, length, newest = connection.execute(_LAST.format(columns), (user,)).fetchone() or (
            -1,
            BLOCK,
            None,
        )
        new = in_order([Entry(i.time, i.item) for i in given], newest)
        if _moment(new[0].time) < _moment(newest):
            number, new = self._take_later(connection, user, new)
            length = BLOCK
        room, rest = new[: BLOCK - length], new[BLOCK - length :]
        if room:
            values = (len(room), room[-1].time, _items(room), _times(room), user, number)
            connection.execute(_EXTEND, values)
        for start in range(0, len(rest), BLOCK):
            number += 1
            block = rest[start : start + BLOCK]
            row = (user, number, len(block), block[-1].time, _items(block), _times(block))
            connection.execute("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", row)
        if self.keep is not None:
            oldest = number - -(-self.keep // BLOCK)
            connection.execute("DELETE FROM blocks WHERE user = ? AND number < ?", (user, oldest))

    def _take_later(
        self, connection: sqlite3.Connection, user: str, new: list[Entry]
    ) -> tuple[int, list[Entry]]:
        """Take rows away until all that is new comes after what is left.

        Returns:
            The number of the last row that is left, and what was taken with what is new, in order.
        """
        taken: list[Entry] = []
        columns = _LAST.format("number, newest, items, times")
        while row := connection.execute(columns, (user,)).fetchone():
            number, newest, items, times = row
            if _moment(newest) <= _moment(new[0].time):
                break
            connection.execute("DELETE FROM blocks WHERE user = ? AND number = ?", (user, number))
            entries = zip(_list([times]), map(as_text, _list([items])), strict=True)
            taken = [Entry(*entry) for entry in entries] + taken
        first = number if not row else number + 1
        return first - 1, sorted(taken + new, key=lambda entry: _moment(entry.time))


def _items(entries: Sequence[Entry]) -> str:
    return ",".join(entry.item for entry in entries)


def _times(entries: Sequence[Entry]) -> str:
    return ",".join(as_text(entry.time) for entry in entries)


def _list(texts: Sequence[str]) -> list[Any]:
    """Read what stands between commas."""
    values: list[Any] = json.loads(f"[{','.join(texts)}]")
    return values
