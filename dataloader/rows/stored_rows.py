"""Rows that are not decoded yet, in parts that can be decoded side by side."""

from __future__ import annotations

import threading
from typing import Protocol

from .decoded_rows import Column, DecodedRows


class PartReader(Protocol):
    """Some of the columns of rows that are stored together."""

    def read(self, first_row: int, rows: int) -> dict[str, Column]:
        """Decode rows, none of them before those of the last call; calls must not overlap."""
        ...


class StoredRows:
    """Some rows of a file (or partition), each of whose parts is decoded once.

    Args:
        names: the columns, in the order of the result.
        rows: how many there are.
        origin: as of :class:`~.decoded_rows.DecodedRows`.
        first_row: see there.
        parts: together they read every column.
    """

    def __init__(
        self,
        names: list[str],
        rows: int,
        origin: str,
        first_row: int,
        parts: list[PartReader],
    ) -> None:
        """Decode nothing yet."""
        self.rows = rows
        self.parts = parts
        self._names = names
        self._origin = origin
        self._first_row = first_row
        self._decoded: dict[PartReader, dict[str, Column]] = {}
        self._lock = threading.Lock()

    def decode(self, part: PartReader) -> tuple[dict[str, Column], DecodedRows | None]:
        """Decode one of the parts, or find what was decoded.

        Returns:
            Its columns; and all rows with all columns, if this was the last of the parts.
        """
        if part in self._decoded:
            return self._decoded[part], None
        columns = part.read(self._first_row, self.rows)
        with self._lock:
            self._decoded[part] = columns
            is_last = len(self._decoded) == len(self.parts)
        return columns, self.whole() if is_last else None

    def whole(self) -> DecodedRows:
        """Put together what the parts gave; all of them were decoded."""
        found = {name: column for part in self._decoded.values() for name, column in part.items()}
        columns = {name: found[name] for name in self._names}
        return DecodedRows(columns, self.rows, self._origin, self._first_row)
