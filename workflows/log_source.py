"""What a raw log is to the workflow: blocks that can be read on their own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from .behaviour_columns import BehaviourColumns
from .fitted_numbers import FittedNumbers
from .text_lines import BadRow


@dataclass(frozen=True)
class Piece:
    """Interactions read, and what could not be read."""

    table: pa.Table
    """The log's columns under the names of :class:`BehaviourColumns`, without nulls."""
    lines: int
    """Lines (rows) of the file that the piece took."""
    bad: list[BadRow]
    """The bad rows, by their line in the piece."""
    done: int
    """Bytes of the block read so far."""


class Block(Protocol):
    """Some of a file."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def size(self) -> int:
        """Bytes on disk, for the progress."""

    @property
    def is_stream(self) -> bool:
        """Whether it can only be read as a stream, in many pieces."""

    @property
    def header(self) -> int:
        """Lines of the file before its first row."""

    def lines_before(self) -> int:
        """Count the file's lines (rows) before the block."""


class LogSource(Protocol):
    """Raw interactions; travels to workers, so it holds paths rather than data."""

    @property
    def columns(self) -> BehaviourColumns:
        """The log's columns."""

    @property
    def files(self) -> Sequence[Path]:
        """The log's files, for messages."""

    def blocks(self) -> Sequence[Any]:
        """The log's blocks, in order."""

    def read(self, block: Any) -> Generator[Piece, None, None]:
        """Read a block; whoever leaves before its end closes this."""

    def checked_with(self, fitted: FittedNumbers) -> LogSource:
        """The same; rows with a number that what operators learned does not fit are bad ones."""

    def size(self) -> int:
        """Bytes of raw data."""

    def time_of(self, text: str, option: str) -> int | float:
        """A time that a person gave, as the number that the log's times become.

        Args:
            text: A number, or a date and time.
            option: What gave it, for messages.

        Raises:
            MerlinSimError: Where the log's times are of another kind.
        """

    def time_kind(self) -> str:
        """What the log's times are: ``"int"``, ``"float"``, or a date and what it counts.

        Times of one kind can be compared; ``"date in us"`` counts microseconds since 1970.
        """
