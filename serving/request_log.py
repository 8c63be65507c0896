"""Some of the events that a server scored, kept in files of bounded size.

A file is of one version of a model in one process: lines of JSON, the first of them says what the
ids in the others mean.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..foundation.exceptions import MerlinSimError
from ..schemas.known_keys import IdsNote
from .settings import LogSettings

if TYPE_CHECKING:
    from .encoder import EncodedEvent
    from .signatures import Scores

FORMAT = 1
PATTERN = "requests-*.jsonl"
FILES = 4
"""Into so many files the bytes go that are kept: with a new one the oldest goes."""


@dataclass
class RequestLog:
    """Keeps some events of one version.

    Whatever goes wrong with a file ends the log, with a sentence, and no request.
    """

    settings: LogSettings
    version: int
    ids: IdsNote
    draw: Callable[[], float] = random.random
    """Gives a number from 0 to 1 for each event."""
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        """Open nothing yet."""
        self._most = (self.settings.log_mib << 20) // FILES
        self._file: IO[str] | None = None
        self._written = 0
        self._count = 0
        self._ended = False
        # Never written: who has a log cannot try all users.
        self._key = os.urandom(32)

    def add(self, events: Sequence[EncodedEvent], scores: Sequence[Scores]) -> None:
        """Keep some of these events."""
        if self._ended:
            return
        pairs = zip(events, scores, strict=True)
        chosen = [pair for pair in pairs if self.draw() < self.settings.log_share]
        try:
            for event, found in chosen:
                self._write(self._line(event, found))
            if chosen and self._file is not None:
                self._file.flush()
        except OSError as error:
            self._ended = True
            print(
                f"merlin-sim: {self.settings.directory}: requests are not kept any more: "
                f"{error.strerror}",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _line(self, event: EncodedEvent, scores: Scores) -> dict[str, Any]:
        user: Any = _plain(event.users)
        if self.settings.hash_users:
            given = json.dumps(user, sort_keys=True).encode()
            user = hashlib.blake2b(given, key=self._key, digest_size=16).hexdigest()
        return {
            "time": self.clock(),
            "user": user,
            "unseen_user": event.unseen_user,
            "targets": _plain(event.targets),
            "histories": _plain(event.histories),
            "scores": scores.tolist(),
        }

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line) + "\n"
        if self._file is None or self._written + len(text) > self._most:
            self._begin_file()
        assert self._file is not None
        self._file.write(text)
        self._written += len(text)

    def _begin_file(self) -> None:
        self.close()
        self._make_room()
        self._count += 1
        now = self.clock()
        began = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}"
        unlike = os.urandom(4).hex()  # any other that begins just now
        name = f"requests-{began}-{self._count:06d}-{self.version}-{unlike}.jsonl"
        descriptor = os.open(
            self.settings.directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
        )
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        head = {"format": FORMAT, "version": self.version, "ids": self.ids.to_dict()}
        text = json.dumps(head) + "\n"
        self._file.write(text)
        self._written = len(text)

    def _make_room(self) -> None:
        """Remove the oldest files, so that a full one more keeps within the bytes."""
        files = []
        for path in self.settings.directory.glob(PATTERN):
            with contextlib.suppress(FileNotFoundError):  # another version makes room, too
                found = path.stat()
                files.append((found.st_mtime_ns, path, found.st_size))
        total = sum(size for _, _, size in files)
        for _, path, size in sorted(files):
            if total + self._most <= self.settings.log_mib << 20:
                return
            total -= size
            path.unlink(missing_ok=True)


def _plain(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values.tolist() for name, values in columns.items()}


@dataclass(frozen=True)
class LoggedFile:
    """A file of a request log."""

    path: Path
    version: int
    ids: IdsNote

    @classmethod
    def open(cls, path: Path) -> LoggedFile:
        """Read the first line."""
        with _opened(path) as file:
            head = _parse(path, 1, file.readline())
        ids = IdsNote.parse(head.get("ids"))
        if head.get("format") != FORMAT or ids is None or not isinstance(head.get("version"), int):
            raise MerlinSimError(
                f"{path}, line 1: expected the beginning of a request log of format {FORMAT}."
            )
        return cls(path, head["version"], ids)

    def events(self) -> Iterator[dict[str, Any]]:
        """Give the events, oldest first.

        A last line without its end is left out: it is being written, or its process was killed.
        """
        with _opened(self.path) as file:
            for number, line in enumerate(file, start=1):
                if number > 1 and line.endswith("\n"):
                    yield _parse(self.path, number, line)


def logged_files(directory: Path) -> list[LoggedFile]:
    """Open all files of a log, oldest first."""
    if not directory.is_dir():
        raise MerlinSimError(f"{directory}: expected a directory that `serve --log_requests` made.")
    files = [LoggedFile.open(path) for path in sorted(directory.glob(PATTERN))]
    if not files:
        raise MerlinSimError(f"{directory}: expected logged requests ({PATTERN}); there are none.")
    return files


def _opened(path: Path) -> Any:
    try:
        return open(path, encoding="utf-8")
    except OSError as error:
        raise MerlinSimError(f"{path} cannot be read: {error.strerror}") from error


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MerlinSimError(f"{path}, line {number}: expected JSON: {error}") from error
    if not isinstance(found, dict):
        raise MerlinSimError(f"{path}, line {number}: expected an object. Received: {line:.60}")
    return found
