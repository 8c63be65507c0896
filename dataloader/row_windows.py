"""Rows that are shuffled together: read by arrow in threads, in the order of their batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from merlin.schema import Schema

from ..foundation.cores import count_cores
from .batch_form import list_widths, small_ids
from .epoch_plan import EpochPlan, Rows
from .hand_over import aligned_array
from .row_check import RowCheck, Where
from .stored_rows import Array, Column, ParquetRows, Part, PartitionRows

Columns = dict[str, Any]
"""By column an array [rows] or [rows, width], or of ragged lists their values and offsets; of numpy
on a CPU, TensorFlow's on a GPU."""
Range = tuple[dict[str, Column], int, int]
"""Columns of a piece, and which of its rows."""


class Window(NamedTuple):
    """Rows that are shuffled together, as far as they are of one rank, in the order of use."""

    first_step: int
    """The first step whose rows these are."""
    batches: int
    batch_rows: int
    columns: Columns

    def batch(self, index: int) -> Columns:
        """Cut a batch's rows out of every column."""
        start = index * self.batch_rows
        stop = start + self.batch_rows
        return {name: cut(column, start, stop) for name, column in self.columns.items()}


class RowWindows:
    """Reads an epoch window by window, on the processor.

    Threads share the columns out: each decodes, checks and orders its own.

    Args:
        stored: where the rows are.
        schema: what the columns hold.
        pad_lists: ragged lists come padded.
        compact_ids: ids of small tables come as int32.
        check: refuse rows that would train nonsense.
        threads: None for one per core.
    """

    def __init__(
        self,
        stored: ParquetRows | PartitionRows,
        schema: Schema,
        *,
        pad_lists: bool,
        compact_ids: bool,
        check: bool,
        threads: int | None,
    ) -> None:
        """Nothing is read yet."""
        self.stored = stored
        self._widths = list_widths(schema, ragged=pad_lists)
        self._compact = small_ids(schema) if compact_ids else frozenset()
        self._check = RowCheck(schema) if check else None
        self._threads = threads or count_cores()

    @property
    def part_rows(self) -> list[int]:
        """The number of rows of each part."""
        return [part.rows for part in self.stored.parts]

    def read(self, plan: EpochPlan, first_step: int, rank: int, ranks: int) -> Iterator[Window]:
        """Read a rank's rows of the windows that hold ``first_step`` and those after it."""
        readers = [_Forward(self, plan, names) for names in self.stored.shares(self._threads)]
        threads = ThreadPoolExecutor(self._threads)
        try:
            for window in plan.windows(first_step):
                rows = plan.rank_rows(window, rank, ranks)
                order = np.concatenate(rows.batches) if plan.shuffle else None
                work = [threads.submit(reader.read, rows.spans, order) for reader in readers]
                found: Columns = {}
                for share in work:
                    found |= share.result()
                where = partial(self._where, plan, rows.spans)
                self._check_lengths([reader.room for reader in readers], where)
                columns = {name: found.pop(name) for name in self.stored.layout}
                first = window.first_row // plan.global_batch_size
                yield Window(first, window.batches, len(rows.batches[0]), columns)
                del columns
        finally:
            threads.shutdown(cancel_futures=True)

    def read_part(self, part: Part) -> Columns:
        """Read the whole of a part."""
        room = self.room(list(self.stored.layout), part.rows)
        fill(room, ((piece, 0, _rows(piece)) for piece in self.pieces(part, list(room))))
        self._check_lengths([room], part.where)
        return {name: column.ordered(None) for name, column in room.items()}

    def pieces(self, part: Part, names: list[str]) -> Iterator[dict[str, Column]]:
        """Decode and check columns of a part."""
        for columns in self.stored.pieces(part, names):
            for name, column in columns.items():
                if self._check is not None:
                    self._check(name, column, part.where)
            yield columns
            part = part._replace(first_row=part.first_row + _rows(columns))

    def room(self, names: list[str], rows: int) -> dict[str, _Room]:
        """Make room for so many rows."""
        room = {}
        for name in names:
            like, width = self.stored.layout[name], self._widths.get(name)
            dtype = np.dtype(np.int32) if name in self._compact else like.values.dtype
            if like.offsets is None:
                room[name] = _Room(aligned_array((rows,), dtype))
            else:
                array = aligned_array((rows, width) if width is not None else (0,), dtype)
                room[name] = _Room(array, np.zeros(rows, np.int64))
        return room

    def _check_lengths(self, rooms: Iterable[dict[str, _Room]], where: Where) -> None:
        if self._check is not None:
            lists = {
                name: column.lengths
                for room in rooms
                for name, column in room.items()
                if column.lengths is not None
            }
            self._check.lengths(lists, where)

    def _where(self, plan: EpochPlan, spans: list[tuple[int, int]], row: int) -> str:
        """Name a row of a window."""
        positions = np.concatenate([np.arange(start, stop) for start, stop in spans])
        place = place_of(plan, positions[row])
        part = self.stored.parts[int(plan.part_order[place])]
        return part.where(int(positions[row] - plan.part_starts[place]))


class _Forward:
    """Some columns of the epoch's sequence of rows, in ranges that go forward."""

    def __init__(self, windows: RowWindows, plan: EpochPlan, names: list[str]) -> None:
        self.room: dict[str, _Room] = {}
        self._windows, self._plan, self._names = windows, plan, names
        self._pieces: Iterator[dict[str, Column]] = iter(())
        self._piece: dict[str, Column] = {}
        self._start = self._stop = self._part_stop = 0  # in the sequence
        self._rows = -1

    def read(self, spans: list[tuple[int, int]], order: Rows | None) -> Columns:
        """Read rows, and give them in another order."""
        rows = sum(stop - start for start, stop in spans)
        if order is None or rows != self._rows:  # what was ordered is a copy
            self.room, self._rows = self._windows.room(self._names, rows), rows
        fill(self.room, (found for span in spans for found in self._ranges(*span)))
        return {name: column.ordered(order) for name, column in self.room.items()}

    def _ranges(self, start: int, stop: int) -> Iterator[Range]:
        while start < stop:
            while start >= self._stop:
                self._advance(start)
            end = min(stop, self._stop)
            yield self._piece, start - self._start, end - self._start
            start = end

    def _advance(self, position: int) -> None:
        """Take the next piece, passing over parts without rows of this rank."""
        if position >= self._part_stop:
            place = place_of(self._plan, position)
            part = self._windows.stored.parts[int(self._plan.part_order[place])]
            self._pieces = self._windows.pieces(part, self._names)
            self._stop, self._part_stop = map(int, self._plan.part_starts[place : place + 2])
        self._piece = next(self._pieces)
        self._start, self._stop = self._stop, self._stop + _rows(self._piece)


class _Room:
    """A column that is filled piece by piece.

    Args:
        array: [rows], or [rows, width] of lists that are padded; of others without a row.
        lengths: [rows] Of lists.
    """

    def __init__(self, array: Array, lengths: Array | None = None) -> None:
        self.array = array
        self.lengths = lengths
        self.values: list[Array] = []

    def put(self, column: Column, start: int, stop: int, place: int) -> None:
        """Copy rows of a piece to a place; what does not fit the dtype was refused before."""
        if column.offsets is None or self.lengths is None:
            self.array[place : place + stop - start] = column.values[start:stop]
            return
        offsets = column.offsets[start : stop + 1]
        values = column.values[offsets[0] : offsets[-1]]
        lengths = self.lengths[place : place + stop - start]
        np.subtract(offsets[1:], offsets[:-1], out=lengths)
        if self.array.ndim == 2:
            pad_left(values, lengths, self.array[place : place + stop - start])
        else:
            self.values.append(values.astype(self.array.dtype))

    def ordered(self, order: Rows | None) -> Any:
        """Give the rows in an order, in which some may be left out; None for the stored one."""
        if self.lengths is None or self.array.ndim == 2:
            return self.array if order is None else _take(self.array, order)
        values, self.values = np.concatenate([self.array, *self.values]), []
        offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        if order is None:
            return values, offsets
        begins, lengths = offsets[order], self.lengths[order]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(begins - starts[:-1], lengths) + np.arange(starts[-1])
        return _take(values, places), starts


def fill(room: dict[str, _Room], ranges: Iterable[Range]) -> None:
    """Copy rows of pieces, one after the other."""
    place = 0
    for columns, start, stop in ranges:
        for name, column in columns.items():
            room[name].put(column, start, stop, place)
        place += stop - start


def pad_left(values: Array, lengths: Array, result: Array) -> None:
    """Write lists to the right end of each row, zeros to their left.

    Of a list longer than a row the last values stay, which are the newest.
    """
    width = result.shape[1]
    if (lengths == width).all():
        result[...] = values.reshape(result.shape)
        return
    if (lengths > width).any():
        ends = np.repeat(np.cumsum(lengths), lengths)
        values = values[ends - np.arange(len(values)) <= width]
    result[...] = 0
    is_used = np.arange(width) >= width - np.arange(width + 1)[:, None]  # by length
    result[is_used[np.minimum(lengths, width)]] = values.astype(result.dtype, copy=False)


def cut(column: Any, start: int, stop: int) -> Any:
    """Cut consecutive rows out of a column."""
    if not isinstance(column, tuple):
        return column[start:stop]
    values, offsets = column
    offsets = offsets[start : stop + 1]
    return values[offsets[0] : offsets[-1]], offsets - offsets[0]


def place_of(plan: EpochPlan, position: int) -> int:
    """Find the part, in the epoch's order, that holds a row of the sequence."""
    return int(np.searchsorted(plan.part_starts, position, side="right")) - 1


def _take(array: Array, rows: Array) -> Array:
    result = aligned_array((len(rows), *array.shape[1:]), array.dtype)
    return np.take(array, rows, axis=0, out=result, mode="clip")


def _rows(columns: dict[str, Column]) -> int:
    return next(iter(columns.values())).rows
