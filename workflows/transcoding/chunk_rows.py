"""Rows of a chunk as they come from its files, and how chunks of one mapping line up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ...foundation.exceptions import MerlinSimError


@dataclass(frozen=True)
class ChunkRows:
    """Some rows of one file."""

    table: pa.Table
    path: Path
    first: int
    """The place of the first row in the file, from 1."""

    def split(self, rows: int) -> tuple[ChunkRows, ChunkRows]:
        """The first ``rows`` rows, and the others."""
        rest = ChunkRows(self.table.slice(rows), self.path, self.first + rows)
        return ChunkRows(self.table.slice(0, rows), self.path, self.first), rest

    def where(self, row: int) -> str:
        """Name a row of the table (from 0) as a message does."""
        return f"{self.path}, row {self.first + row}"


def line_up(chunks: list[Iterator[ChunkRows]]) -> Iterator[list[ChunkRows]]:
    """Walk through chunks side by side; gives as many rows of each at a time.

    Raises:
        MerlinSimError: Where one chunk has rows and another has no more.
    """
    waiting: list[ChunkRows | None] = [None] * len(chunks)
    last: list[ChunkRows | None] = [None] * len(chunks)
    while True:
        for place, chunk in enumerate(chunks):
            while (rows := waiting[place]) is None or not rows.table.num_rows:
                waiting[place] = next(chunk, None)
                if waiting[place] is None:
                    break
                last[place] = waiting[place]
        present = [rows for rows in waiting if rows is not None]
        if len(present) < len(chunks):
            if present:
                raise _does_not_line_up(waiting, last)
            return
        count = min(rows.table.num_rows for rows in present)
        pairs = [rows.split(count) for rows in present]
        waiting = [rest for _, rest in pairs]
        yield [taken for taken, _ in pairs]


def _does_not_line_up(
    waiting: list[ChunkRows | None], last: list[ChunkRows | None]
) -> MerlinSimError:
    ended = waiting.index(None)
    end = last[ended]
    going_on = next(rows for rows in waiting if rows is not None)
    where = f"after {end.where(end.table.num_rows - 1)}" if end is not None else "without a row"
    return MerlinSimError(
        f"The chunks of a mapping should have the same rows, but chunk {ended} ends {where}, "
        f"while another goes on at {going_on.where(0)}."
    )
