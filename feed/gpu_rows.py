"""The feed's rows as cudf frames: Merlin's own path on a GPU, behind the same plan of the epoch.

No GPU was at hand: the tests run this with pandas in cudf's place. Merlin's conversion of frames
cannot take a batch in which a history is empty in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .data_error import DataError
from .epoch_plan import Rows
from .rows.row_source import ParquetRows


@dataclass(frozen=True)
class FramePiece:
    """Rows of one row group as a frame on the device."""

    frame: Any
    origin: str
    first_row: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.frame)


class FrameRows:
    """Reads the row groups of :class:`ParquetRows` with cudf.

    Args:
        parquet: says which row groups there are.
        library: cudf.
    """

    def __init__(self, parquet: ParquetRows, library: Any) -> None:
        """Remember both."""
        self._parquet = parquet
        self._library = library

    @property
    def part_rows(self) -> list[int]:
        """The number of rows of each row group."""
        return self._parquet.part_rows

    def read(self, part: int) -> Iterator[FramePiece]:
        """Decode a row group on the device, as a whole."""
        path, group, first_row, rows = self._parquet.parts[part]
        try:
            frame = self._library.read_parquet(
                path, row_groups=[[group]], columns=self._parquet.columns
            )
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{path} is damaged in rows {first_row} to {first_row + rows - 1}"
                f" (row group {group}): {error}"
            ) from error
        yield FramePiece(frame, path, first_row)


class GatheredFrames:
    """Frames of several row groups, numbered as if they were joined.

    Args:
        pieces: each with its own range of rows.
        library: cudf.
        make_tensors: Merlin's, from a frame of at most one batch to its batches.
    """

    def __init__(
        self,
        pieces: list[tuple[FramePiece, int, int]],
        library: Any,
        make_tensors: Callable[[Any], Iterator[Any]],
    ) -> None:
        """Join the frames."""
        parts = [piece.frame.iloc[start:stop] for piece, start, stop in pieces]
        self._frame = library.concat(parts, ignore_index=True) if parts else None
        self._make_tensors = make_tensors

    def batch(self, rows: Rows) -> Any:
        """Give one batch; None where there are no rows, for which Merlin has no form."""
        if self._frame is None or not len(rows):
            return None
        return next(iter(self._make_tensors(self._frame.take(rows).reset_index(drop=True))))
