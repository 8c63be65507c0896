"""What a server kept of its requests, read again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...schemas.known_keys import IdsNote
from .request_log import FORMAT, PATTERN


@dataclass(frozen=True)
class LoggedFile:
    """A file of a request log."""

    path: Path
    version: int
    """Of the model that answered."""
    ids: IdsNote
    """What the ids mean."""

    @classmethod
    def open(cls, path: Path) -> LoggedFile:
        """Read the first line.

        Raises:
            MerlinSimError: Where it is not what was written.
        """
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

        Raises:
            MerlinSimError: Naming the line that is not what was written.
        """
        with _opened(self.path) as file:
            for number, line in enumerate(file, start=1):
                if number > 1 and line.endswith("\n"):
                    yield _parse(self.path, number, line)


def logged_files(directory: Path) -> list[LoggedFile]:
    """Open all files of a log, oldest first.

    Raises:
        MerlinSimError: Where there is none.
    """
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
