"""The feed's rows on a GPU: cudf decodes row groups, cupy makes the batches.

No value goes through the host, which knows only where lists begin. The plan of the epoch, the
checks and the batches are those of the CPU: histories are padded to the schema's length whatever
is in them, so that the compiled step always sees one shape.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from merlin.schema import Schema

from ..foundation.gpu_use import short_of_memory
from ..foundation.row_numbers import for_each_element
from .batch_form import binary_labels, largest_ids
from .data_error import DataError
from .epoch_plan import EpochPlan, Rows
from .row_check import LARGEST_NUMBER, RowCheck, aligned_lists, vector_widths
from .rows.decoded_rows import Column, DecodedRows, ListColumn, ScalarColumn, decode
from .rows.row_source import ParquetRows

READ_BYTES = 2**30
"""About what is decoded in one call: windows that are smaller are read several at a time."""
USUAL_LENGTH = 100
"""Of lists whose longest the schema does not tell."""

Place = tuple[DecodedRows, int]
"""Rows on the device, and where among them those of one row group begin."""


class FrameRows:
    """Reads row groups of :class:`ParquetRows` on the device, with cudf.

    cudf takes nearly as long for one row group as for sixteen: it decodes pages side by side, and
    a row group has few. So those of a window, or of several small ones, are read in one call.

    Args:
        parquet: says which row groups there are.
        library: cudf.
        schema: what the columns may hold.
        check: refuse rows that would train nonsense.
    """

    def __init__(self, parquet: ParquetRows, library: Any, schema: Schema, check: bool) -> None:
        """Remember what is read, and with what."""
        self._parquet = parquet
        self._library = library
        self._cupy = importlib.import_module("cupy")
        self._check = RowCheck(schema) if check else None
        self._quick_check = QuickCheck(schema, self._cupy)

    def read(self, parts: Sequence[int]) -> list[Place]:
        """Decode row groups; their values are arrays of cupy."""
        for path in {self._parquet.parts[part][0] for part in parts}:
            self._parquet.require_unchanged(path)
        # One by one where something is wrong, so that it is known in which, or memory is short.
        return self._read_together(parts) or [(self._read_alone(part), 0) for part in parts]

    def _read_together(self, parts: Sequence[int]) -> list[Place] | None:
        """Decode them in one call; None where that fails, or rows would train nonsense."""
        of_file: dict[str, list[int]] = {}
        for part in sorted(parts):
            of_file.setdefault(self._parquet.parts[part][0], []).append(part)
        groups = [[self._parquet.parts[part][1] for part in given] for given in of_file.values()]
        try:
            frame = self._library.read_parquet(
                list(of_file), row_groups=groups, columns=self._parquet.columns
            )
        except (OSError, RuntimeError, MemoryError):
            return None
        begins, rows = {}, 0
        for part in itertools.chain(*of_file.values()):
            begins[part] = rows
            rows += self._parquet.parts[part][3]
        columns = self._columns(frame) if len(frame) == rows else None
        if columns is None or not self._passes(columns):
            return None
        decoded = DecodedRows(columns, rows, "", 0)
        return [(decoded, begins[part]) for part in parts]

    def _passes(self, columns: dict[str, Column]) -> bool:
        return self._check is None or self._quick_check(columns)

    def _read_alone(self, part: int) -> DecodedRows:
        """Decode a row group; what is wrong with it is said."""
        path, group, first_row, rows = self._parquet.parts[part]
        try:
            frame = self._library.read_parquet(
                [path], row_groups=[[group]], columns=self._parquet.columns
            )
        except (OSError, RuntimeError) as error:
            if short_of_memory(error) is not None:
                raise
            raise DataError(
                f"{path} is damaged in rows {first_row + 1} to {first_row + rows}"
                f" (row group {group}): {error}"
            ) from error
        columns = self._columns(frame)
        if columns is not None and self._passes(columns):
            return DecodedRows(columns, rows, path, first_row)
        host = decode(frame.to_arrow(preserve_index=False), path, first_row)
        if self._check is not None:
            self._check(host)  # it knows which row is wrong, and says so
        return DecodedRows(self._copied(host), rows, path, first_row)

    def _columns(self, frame: Any) -> dict[str, Column] | None:
        """See each column's values on the device; None where one is missing.

        Where lists begin is for the host, which cuts pieces of them.
        """
        columns: dict[str, Column] = {}
        for name, like in self._parquet.layout.columns.items():
            series = frame[name]
            if series.has_nulls:
                return None
            if not isinstance(like, ListColumn):
                columns[name] = ScalarColumn(series.values)
                continue
            leaves = series.list.leaves
            if leaves.has_nulls:
                return None
            columns[name] = ListColumn(
                leaves.values, offsets_of(series.list.len().values.get(), np)
            )
        return columns

    def _copied(self, host: DecodedRows) -> dict[str, Column]:
        xp = self._cupy
        return {
            name: ListColumn(xp.asarray(column.used), column.offsets)
            if isinstance(column, ListColumn)
            else ScalarColumn(xp.asarray(column.values))
            for name, column in host.columns.items()
        }


def rows_to_read(layout: DecodedRows, widths: dict[str, int]) -> int:
    """Say how many rows are about :data:`READ_BYTES` when they are decoded."""
    elements = sum(
        widths.get(name, USUAL_LENGTH) if isinstance(column, ListColumn) else 1
        for name, column in layout.columns.items()
    )
    return READ_BYTES // (8 * max(1, elements))


class FrameReader:
    """Gives ranges of the sequence of ``plan``, going forward, reading each row group once.

    Args:
        rows: reads row groups.
        plan: their order in this epoch.
    """

    def __init__(self, rows: FrameRows, plan: EpochPlan) -> None:
        """Nothing is read yet."""
        self._rows = rows
        self._plan = plan
        self._read: dict[int, Place] = {}  # by the row group's number in the epoch's order

    def fetch(self, spans: Sequence[tuple[int, int]]) -> None:
        """Read what these ranges lack, and let go of what they do not need."""
        numbers = {number for span in spans for number in self._numbers(*span)}
        self._read = {number: self._read[number] for number in numbers & self._read.keys()}
        lacking = sorted(numbers - self._read.keys())
        if lacking:
            found = self._rows.read([int(self._plan.part_order[number]) for number in lacking])
            self._read.update(zip(lacking, found, strict=True))

    def pieces(self, spans: Sequence[tuple[int, int]]) -> list[tuple[DecodedRows, int, int]]:
        """Give what was fetched in the order of ``spans``, each with its own range of rows."""
        starts, pieces = self._plan.part_starts, []
        for start, stop in spans:
            for number in self._numbers(start, stop):
                decoded, begin = self._read[number]
                shift = begin - int(starts[number])
                low, high = max(start, int(starts[number])), min(stop, int(starts[number + 1]))
                pieces.append((decoded, low + shift, high + shift))
        return pieces

    def _numbers(self, start: int, stop: int) -> range:
        starts = self._plan.part_starts
        first = int(np.searchsorted(starts, start, side="right")) - 1
        return range(first, int(np.searchsorted(starts, stop, side="left")))


class QuickCheck:
    """Tells on the device whether rows pass :class:`~.row_check.RowCheck`, with one answer."""

    def __init__(self, schema: Schema, cupy: Any) -> None:
        """Read from the schema what is allowed."""
        self._xp = cupy
        self._largest = largest_ids(schema)
        self._labels = binary_labels(schema)
        self._aligned = aligned_lists(schema)
        self._widths = vector_widths(schema)

    def __call__(self, columns: dict[str, Column]) -> bool:
        """Return whether nothing is wrong."""
        for name, width in self._widths.items():
            vectors = columns[name]
            if isinstance(vectors, ListColumn) and (np.diff(vectors.offsets) != width).any():
                return False
        wrong = self._xp.zeros((), bool)
        for name, column in columns.items():
            wrong = wrong | self._wrong_values(name, column.values).any()
        for names in self._aligned:
            for name in names[1:]:
                one, other = columns[names[0]], columns[name]
                if isinstance(one, ListColumn) and isinstance(other, ListColumn):
                    if not np.array_equal(one.offsets, other.offsets):
                        return False
        return not bool(wrong)

    def _wrong_values(self, name: str, values: Any) -> Any:
        xp = self._xp
        is_float = values.dtype.kind == "f"
        if name in self._largest:
            wrong = (values < 0) | (values > self._largest[name])
            return wrong | (xp.floor(values) != values) if is_float else wrong
        if name in self._labels and values.dtype != np.bool_:
            return (values != 0) & (values != 1)
        return ~(xp.abs(values) <= LARGEST_NUMBER) if is_float else xp.zeros(1, bool)


class DeviceWindow:
    """Rows of a window on the device, numbered as if its pieces were joined.

    Args:
        pieces: each with its own range of rows.
        layout: the columns without rows: which they are, lists or scalars, of which dtype.
        widths: columns of lists that become [rows, width] arrays, padded with zeros on the left.
        ids: columns of ids that are compact on a CPU. They are int64 here: TensorFlow keeps the
            int32 arguments of a function on the host, whatever device they come from.
    """

    def __init__(
        self,
        pieces: Sequence[tuple[DecodedRows, int, int]],
        layout: DecodedRows,
        widths: dict[str, int],
        ids: frozenset[str],
    ) -> None:
        """Join the pieces, column by column."""
        self._xp = importlib.import_module("cupy")
        self._layout = layout
        self._widths = widths
        self._columns = {
            name: self._join(name, pieces, np.dtype(np.int64) if name in ids else None)
            for name in layout.columns
        }

    def batch(self, rows: Rows) -> dict[str, Any]:
        """Gather rows of every column; lists come padded, or as values and offsets.

        The arrays are whole when this returns: TensorFlow computes in a stream of its own, which
        waits for no other.
        """
        places = self._xp.asarray(rows)
        taken = {name: self._take(name, column, places) for name, column in self._columns.items()}
        self._xp.cuda.get_current_stream().synchronize()
        return taken

    def _join(
        self, name: str, pieces: Sequence[tuple[DecodedRows, int, int]], dtype: Any
    ) -> Column:
        xp, like = self._xp, self._layout.columns[name]
        dtype = dtype or like.values.dtype
        values, lengths = [xp.zeros(0, dtype)], [np.zeros(0, np.int64)]
        for decoded, start, stop in pieces:
            column = decoded.columns[name]
            if isinstance(column, ListColumn):
                ends = column.offsets[start : stop + 1]
                lengths.append(np.diff(ends))
                start, stop = int(ends[0]), int(ends[-1])
            values.append(column.values[start:stop].astype(dtype))
        if not isinstance(like, ListColumn):
            return ScalarColumn(xp.concatenate(values))
        offsets = xp.asarray(offsets_of(np.concatenate(lengths), np))
        return ListColumn(xp.concatenate(values), offsets)

    def _take(self, name: str, column: Column, places: Any) -> Any:
        if not isinstance(column, ListColumn):
            return column.values[places]
        begins, ends = column.offsets[places], column.offsets[places + 1]
        if name in self._widths:
            return self._pad(column.values, begins, ends, self._widths[name])
        xp = self._xp
        offsets = offsets_of(ends - begins, xp)
        shift = for_each_element(begins - offsets[:-1], offsets, xp)
        return column.values[shift + xp.arange(shift.size, dtype=xp.int64)], offsets

    def _pad(self, values: Any, begins: Any, ends: Any, width: int) -> Any:
        """Bring lists to one width, zeros to their left; of longer ones the newest stay."""
        xp = self._xp
        if not values.size:  # in the whole window no list has an element
            return xp.zeros((begins.size, width), values.dtype)
        source = (ends - width).reshape(-1, 1) + xp.arange(width, dtype=xp.int64)
        inside = source >= begins.reshape(-1, 1)
        return xp.where(inside, values[xp.where(inside, source, 0)], xp.zeros(1, values.dtype))


def offsets_of(lengths: Any, xp: Any) -> Any:
    """Say where each list begins, and where the last one ends."""
    return xp.concatenate([xp.zeros(1, xp.int64), xp.cumsum(lengths, dtype=xp.int64)])
