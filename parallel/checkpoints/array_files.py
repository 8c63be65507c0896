"""Files of array parts: each rank writes one, and any rank reads any range out of all of them."""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...foundation.digest import digest_of

Array = npt.NDArray[Any]


class IndexRange(NamedTuple):
    """Indices from ``begin`` to ``end``, the end not included."""

    begin: int
    end: int

    def overlap(self, other: IndexRange) -> IndexRange:
        """Return what both have; nothing is an end that is not behind its begin."""
        return IndexRange(max(self.begin, other.begin), min(self.end, other.end))

    def within(self, other: IndexRange) -> slice:
        """Return where this range stands in an array that holds ``other``."""
        return slice(self.begin - other.begin, self.end - other.begin)


def extents(shape: Iterable[int]) -> tuple[IndexRange, IndexRange]:
    """Return all rows and all columns of a shape; an axis that is not there has length 1.

    >>> extents([7]), extents([7, 4, 2])
    ((IndexRange(begin=0, end=7), IndexRange(begin=0, end=1)),
     (IndexRange(begin=0, end=7), IndexRange(begin=0, end=4)))
    """
    rows, columns, *_ = (*shape, 1, 1)
    return IndexRange(0, rows), IndexRange(0, columns)


@dataclass(frozen=True)
class ArrayPart:
    """Some rows and columns of a variable, and all of whatever axes follow."""

    variable: str
    values: Array
    """What stands in these rows and columns."""
    shape: tuple[int, ...]
    """Shape of the whole variable."""
    table: str | None = None
    """The embedding table that it is, or is a slot of."""
    first_row: int = 0
    first_column: int = 0

    @property
    def rows(self) -> IndexRange:
        """The rows of the variable that this part has."""
        return IndexRange(self.first_row, self.first_row + extents(self.values.shape)[0].end)

    @property
    def columns(self) -> IndexRange:
        """The columns of the variable that this part has."""
        return IndexRange(self.first_column, self.first_column + extents(self.values.shape)[1].end)


def whole(
    arrays: Mapping[str, Any], tables: Mapping[str, str | None] | None = None
) -> Iterator[ArrayPart]:
    """Make each array one part: all rows, all columns.

    Values may be what gives them by ``numpy()`` when it is its turn. ``tables`` names the table of
    those variables that have one.
    """
    for name, array in arrays.items():
        values = array.numpy() if hasattr(array, "numpy") else np.asarray(array)
        yield ArrayPart(name, values, values.shape, (tables or {}).get(name))
        del values  # before the next one is there


Area = tuple[IndexRange, IndexRange]


def find_fault(whole: Area, parts: Sequence[Area]) -> str | None:
    """Say which rows and columns stand in no part, or in several, or lie outside; None for none.

    >>> rows, columns = IndexRange(0, 10), IndexRange(0, 4)
    >>> find_fault((rows, columns), [(IndexRange(0, 6), columns), (IndexRange(6, 10), columns)])
    >>> find_fault((rows, columns), [(IndexRange(0, 6), columns), (IndexRange(7, 10), columns)])
    'rows 6 to 7, columns 0 to 4 stand in no part'
    >>> find_fault((rows, columns), [(IndexRange(0, 6), columns), (IndexRange(5, 10), columns)])
    'rows 5 to 6, columns 0 to 4 stand in 2 parts'
    """
    for part in parts:
        for asked, there in zip(part, whole, strict=True):
            if not there.begin <= asked.begin <= asked.end <= there.end:
                return f"a part has the indices {asked.begin} to {asked.end} of {there.end}"
    # Between two neighbouring cuts all indices are alike: count the parts of each such piece.
    rows, columns = ([*whole[axis], *(c for p in parts for c in p[axis])] for axis in (0, 1))
    row_cuts, column_cuts = np.unique(rows), np.unique(columns)
    counts = np.zeros((len(row_cuts) - 1, len(column_cuts) - 1), np.int64)
    for part in parts:
        first = (np.searchsorted(row_cuts, part[0]), np.searchsorted(column_cuts, part[1]))
        counts[slice(*first[0]), slice(*first[1])] += 1
    wrong = np.argwhere(counts != 1)
    if not len(wrong):
        return None
    row, column = wrong[0]
    number = int(counts[row, column])
    found = f"{number} parts" if number else "no part"
    return (
        f"rows {row_cuts[row]} to {row_cuts[row + 1]}, columns {column_cuts[column]} to "
        f"{column_cuts[column + 1]} stand in {found}"
    )


SYNCED_BYTES = 1 << 28
"""Bytes of a file that are written between two waits for the disk."""
READ_BYTES = 1 << 26
"""Bytes of a part that are read at a time where not all of its columns are wanted."""
NAME_LENGTHS = 26, "<HH"
"""Where the header of an archive's entry says how long its name and what follows that are."""
ENTRY_HEADER = 30
"""The bytes of such a header before the name."""


@dataclass(frozen=True)
class StoredPart:
    """Where a part of an array is in its file."""

    file: str
    rows: IndexRange
    columns: IndexRange


@dataclass(frozen=True)
class StoredArray:
    """One array, and where its parts stand."""

    dtype: str
    shape: tuple[int, ...]
    table: str | None
    parts: tuple[StoredPart, ...]

    @classmethod
    def parse(cls, entry: Any) -> StoredArray:
        """Read it from JSON; whatever else it is given, some error comes of it."""
        parts = [
            StoredPart(str(part["file"]), IndexRange(*part["rows"]), IndexRange(*part["columns"]))
            for part in entry["parts"]
        ]
        shape = tuple(int(length) for length in entry["shape"])
        return cls(np.dtype(entry["dtype"]).name, shape, entry["table"], tuple(parts))


@dataclass(frozen=True)
class WrittenFile:
    """File that one rank wrote; small enough to be sent to the rank of the manifest."""

    name: str
    sha256: str
    arrays: dict[str, StoredArray]
    """Variable -> its parts in this file."""


def file_name(rank: int = 0, ranks: int = 1) -> str:
    """Name the file of a rank.

    >>> file_name(), file_name(1, 3)
    ('arrays.npz', 'arrays-1-of-3.npz')
    """
    return "arrays.npz" if ranks == 1 else f"arrays-{rank}-of-{ranks}.npz"


class _ReportingFile(io.BufferedWriter):
    """A new file that reports each write, and brings it to the disk as it goes."""

    def __init__(self, path: Path, report: Callable[[], None]) -> None:
        super().__init__(io.FileIO(path, "w"))
        self._report = report
        self._unsynced = 0

    def write(self, data: Any) -> int:
        """Write, and wait for the disk where much has been written: the last wait is short then."""
        written = super().write(data)
        self._unsynced += written
        if self._unsynced >= SYNCED_BYTES:
            self.flush()
            os.fdatasync(self.fileno())
            self._unsynced = 0
        self._report()
        return written


def write_arrays(
    directory: Path,
    parts: Iterable[ArrayPart],
    rank: int = 0,
    ranks: int = 1,
    report: Callable[[], None] = lambda: None,
) -> WrittenFile:
    """Write a rank's file, which ``np.load`` can read, and wait until it is on the disk.

    ``report`` is called again and again while it goes on.
    """
    name = file_name(rank, ranks)
    arrays: dict[str, StoredArray] = {}
    # np.savez leaves its archive open where the disk is full.
    with _ReportingFile(directory / name, report) as file:
        with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
            for part in parts:
                _add(arrays, part, name)
                key = _key(part.variable, part.shape, part.rows, part.columns)
                with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(  # type: ignore[no-untyped-call]
                        entry, np.asarray(part.values, order="C"), allow_pickle=False
                    )
                del part  # before the next one is there
        file.flush()
        os.fsync(file.fileno())
    with open(directory / name, "rb") as file:
        return WrittenFile(name, digest_of(file, report), arrays)


def join_index(files: Sequence[WrittenFile]) -> dict[str, StoredArray]:
    """Put together what the ranks wrote: variable -> all of its parts.

    Raises:
        ValueError: where ranks disagree about an array, or parts overlap or leave a gap.
    """
    joined: dict[str, StoredArray] = {}
    for file in files:
        for variable, array in file.arrays.items():
            joined[variable] = _join(variable, joined.get(variable), array)
    for variable, array in joined.items():
        _check_coverage(variable, array)
    return joined


class StoredArrays(Mapping[str, Array]):
    """The arrays of a checkpoint, read when they are asked for.

    The files are held open, so that what was checked is what is read, even when another process
    removes the checkpoint meanwhile.
    """

    def __init__(self, files: Mapping[str, IO[bytes]], index: Mapping[str, StoredArray]) -> None:
        """Look at every part's header; no array is read yet."""
        self.index = dict(index)
        self._files = dict(files)
        self._archives = {name: zipfile.ZipFile(file) for name, file in files.items()}
        self._begins: dict[tuple[str, str], int] = {}
        for variable, array in self.index.items():
            _check_coverage(variable, array)
            for part in array.parts:
                self._check_header(variable, array, part)

    def __getitem__(self, variable: str) -> Array:
        """Read a whole array."""
        return self.read(variable)

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)

    def read(
        self,
        variable: str,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
    ) -> Array:
        """Read a range of an array, out of as many parts as hold it; by default all of it."""
        array = self.index[variable]
        all_rows, all_columns = extents(array.shape)
        ranges = IndexRange(*(rows or all_rows)), IndexRange(*(columns or all_columns))
        for what, asked, there in zip(
            ("rows", "columns"), ranges, (all_rows, all_columns), strict=True
        ):
            if not there.begin <= asked.begin <= asked.end <= there.end:
                raise ValueError(f"{variable} has no {what} {asked.begin} to {asked.end}")
        result = np.empty(_shape_of(array.shape, *ranges), array.dtype)
        for part in array.parts:
            self._copy(variable, array, part, ranges, result)
        return result

    def _copy(
        self,
        variable: str,
        array: StoredArray,
        part: StoredPart,
        ranges: tuple[IndexRange, IndexRange],
        result: Array,
    ) -> None:
        """Read the rows that a part has of the ranges into the array."""
        rows, columns = ranges[0].overlap(part.rows), ranges[1].overlap(part.columns)
        if rows.begin >= rows.end or columns.begin >= columns.end:
            return
        begin = self._begins[part.file, _key(variable, array.shape, part.rows, part.columns)]
        of_row = _shape_of(array.shape, IndexRange(0, 1), part.columns)
        row_bytes = math.prod(of_row) * result.itemsize
        begin += (rows.begin - part.rows.begin) * row_bytes
        if columns == part.columns == ranges[1]:
            self._read_into(part.file, begin, result[rows.within(ranges[0])] if of_row else result)
            return
        there, here = columns.within(part.columns), columns.within(ranges[1])
        rows_at_once = max(1, READ_BYTES // row_bytes)
        for row in range(rows.begin, rows.end, rows_at_once):
            some = IndexRange(row, min(row + rows_at_once, rows.end))
            values = np.empty(_shape_of(array.shape, some, part.columns), array.dtype)
            self._read_into(part.file, begin, values)
            result[some.within(ranges[0]), here] = values[:, there]
            begin += values.nbytes

    def _read_into(self, name: str, begin: int, values: Array) -> None:
        file = self._files[name]
        file.seek(begin)
        if file.readinto(values.reshape(-1).view(np.uint8)) != values.nbytes:  # type: ignore[attr-defined]
            raise ValueError(f"{name} ends before what it should hold")

    def _check_header(self, variable: str, array: StoredArray, part: StoredPart) -> None:
        key = _key(variable, array.shape, part.rows, part.columns)
        archive, file = self._archives[part.file], self._files[part.file]
        entry_of = archive.getinfo(f"{key}.npy")
        with archive.open(entry_of) as entry:
            version = np.lib.format.read_magic(entry)  # type: ignore[no-untyped-call]
            if version != (1, 0):
                raise ValueError(f"{variable} in {part.file} is no array of version 1.0")
            header = np.lib.format.read_array_header_1_0(entry)  # type: ignore[no-untyped-call]
            in_entry = entry.tell()
        shape, by_columns, dtype = header
        if (shape, dtype) != (_shape_of(array.shape, part.rows, part.columns), array.dtype):
            raise ValueError(
                f"{variable} in {part.file} is {list(shape)} of {dtype}, not what the index says"
            )
        if entry_of.compress_type != zipfile.ZIP_STORED or (by_columns and len(shape) > 1):
            raise ValueError(f"{variable} in {part.file} is not stored row by row")
        offset, form = NAME_LENGTHS
        file.seek(entry_of.header_offset + offset)
        lengths = struct.unpack(form, file.read(struct.calcsize(form)))
        before = entry_of.header_offset + ENTRY_HEADER + sum(lengths)
        self._begins[part.file, key] = before + in_entry


def _key(variable: str, shape: tuple[int, ...], rows: IndexRange, columns: IndexRange) -> str:
    if (rows, columns) == extents(shape):
        return variable
    return f"{variable}[{rows.begin}:{rows.end},{columns.begin}:{columns.end}]"


def _shape_of(shape: tuple[int, ...], rows: IndexRange, columns: IndexRange) -> tuple[int, ...]:
    lengths = (rows.end - rows.begin, columns.end - columns.begin)
    return (*lengths[: len(shape)], *shape[2:])


def _add(arrays: dict[str, StoredArray], part: ArrayPart, file: str) -> None:
    stored = StoredPart(file, part.rows, part.columns)
    array = StoredArray(part.values.dtype.name, tuple(part.shape), part.table, (stored,))
    arrays[part.variable] = _join(part.variable, arrays.get(part.variable), array)


def _join(variable: str, one: StoredArray | None, other: StoredArray) -> StoredArray:
    if one is None:
        return other
    known, new = ((array.dtype, array.shape, array.table) for array in (one, other))
    if known != new:
        raise ValueError(f"{variable} is {known} for one rank and {new} for another")
    return StoredArray(one.dtype, one.shape, one.table, one.parts + other.parts)


def _check_coverage(variable: str, array: StoredArray) -> None:
    fault = find_fault(extents(array.shape), [(p.rows, p.columns) for p in array.parts])
    if fault is not None:
        raise ValueError(f"{variable}: {fault}")
