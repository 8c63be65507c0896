"""The rows of a mapping as the checks see them, batch by batch, and hashes to find equal ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ...dataloader.arrow_columns import Column, decode
from ...dataloader.row_check import RowCheck
from ...foundation.cores import count_cores
from ...foundation.hashing import GOLDEN, mix
from ...schemas.channels import LABEL, NEGATIVE_HISTORY, POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory
from ...schemas.parquet import reading, row_pieces

BATCH_ROWS = 1 << 16
MOST_KEPT = 1 << 25
"""Hashes in memory, 256 MB of them; beyond, half of the hashes are dropped, again and again."""
Array = npt.NDArray[Any]


class CheckedRows:
    """Some rows.

    Args:
        labels: [rows] 0 and 1.
        columns: By name, ids [rows], numbers [rows] or vectors [rows, width].
        history: The items of each history, 0 for padding; None where there are no histories.
        file_order: [rows] Where each row is in its file, 0 to 1; None where rows are made.
        lists: By name, other lists; 0 for padding.
    """

    def __init__(
        self,
        labels: Array,
        columns: dict[str, Array],
        history: Column | None,
        file_order: Array | None = None,
        lists: Mapping[str, Column] | None = None,
    ) -> None:
        self.labels, self.columns, self.file_order = labels, columns, file_order
        self.lists = lists or {}
        self.lengths: Array | None = None
        """[rows] How long the histories are; None where there are none."""
        self.last: Array | None = None
        """[rows] The last item of each history, 0 where it is empty; None where there are none."""
        self.hashes = labels.astype(np.uint64)
        """[rows] Of label, columns, history and lists: equal rows have equal ones."""
        if history is not None and history.offsets is not None:
            items, offsets = history.values, history.offsets
            hashes, self.lengths = _hash_lists(items, offsets)
            self.hashes += hashes
            self.last = np.zeros(len(labels), np.int64)
            some = np.diff(offsets) > 0
            self.last[some] = items[offsets[1:][some] - 1]
        for values in columns.values():
            for numbers in values.reshape(len(labels), math.prod(values.shape[1:])).T:
                _add_to_hashes(self.hashes, _whole(numbers))
        for one in self.lists.values():
            hashes, _ = _hash_lists(_whole(one.values), one.offsets)
            _add_to_hashes(self.hashes, hashes.view(np.int64))


def _whole(values: Array) -> Array:
    """Equal whole numbers of equal numbers."""
    if values.dtype.kind == "f":
        values = (values.astype(np.float32) + 0).view(np.uint32)  # -0.0 is 0.0
    return values.astype(np.int64)


@numba.njit(cache=True, nogil=True)
def _hash_lists(values: Array, offsets: Array) -> tuple[Array, Array]:
    """A hash of each list, and how many elements it has; padding (0) is not counted."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    lengths = np.empty(len(offsets) - 1, np.int64)
    for row in range(len(hashes)):
        found, length = np.uint64(0), 0
        for position in range(offsets[row], offsets[row + 1]):
            if values[position] != 0:
                found = found * GOLDEN + np.uint64(values[position])
                length += 1
        hashes[row], lengths[row] = mix(found), length
    return hashes, lengths


@numba.njit(cache=True, nogil=True)
def _add_to_hashes(hashes: Array, values: Array) -> None:
    for row in range(len(hashes)):
        hashes[row] = mix(hashes[row] * GOLDEN + np.uint64(values[row]))


class SampleHashes:
    """The hashes of a mapping's rows, kept to find equal ones; of many rows, those of a share.

    Equal rows have equal hashes, so the share that is kept has all of its repetitions.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._kept: list[Array] = []
        self._count = 0
        self._most = most
        self.one_of = 1
        """Which share is kept: all, or one of so many."""

    def add(self, hashes: Array) -> None:
        """Take note of rows."""
        self._kept.append(_share(hashes, self.one_of))
        self._count += len(self._kept[-1])
        while self._count > self._most:
            self.one_of *= 2
            self._kept = [_share(kept, self.one_of) for kept in self._kept]
            self._count = sum(map(len, self._kept))

    def sorted(self, one_of: int) -> Array:
        """The hashes of a share that is not larger than what is kept, sorted."""
        kept = [np.empty(0, np.uint64), *self._kept]
        return np.sort(np.concatenate([_share(hashes, one_of) for hashes in kept]))

    def repeated(self) -> tuple[int, int]:
        """How many rows repeat an earlier one, and of how many that were looked at."""
        hashes = self.sorted(self.one_of)
        return int(np.count_nonzero(hashes[1:] == hashes[:-1])), len(hashes)

    def found_in(self, other: SampleHashes) -> tuple[int, int]:
        """How many rows are in another mapping too, and of how many that were looked at."""
        one_of = max(self.one_of, other.one_of)
        ours, theirs = self.sorted(one_of), other.sorted(one_of)
        indices = np.searchsorted(theirs, ours)
        found = indices < len(theirs)
        return int(np.count_nonzero(theirs[indices[found]] == ours[found])), len(ours)


def _share(hashes: Array, one_of: int) -> Array:
    if one_of == 1:
        return hashes
    chosen: Array = hashes[(hashes >> np.uint64(40)) % np.uint64(one_of) == 0]
    return chosen


def checked_columns(dataset: DatasetDirectory) -> list[str]:
    """The columns by which rows are compared, the history's items last.

    Negative histories are left out, for they are drawn, and what follows from a history's items.
    """
    channels, histories = dataset.channels, (POSITIVE_HISTORY, NEGATIVE_HISTORY)
    others = [n for channel, names in channels.items() if channel not in histories for n in names]
    return [*others, *channels.get(POSITIVE_HISTORY, [])[:1]]


class FileRows:
    """The rows of a mapping that has one row per sample."""

    def __init__(self, dataset: DatasetDirectory, mapping: str) -> None:
        self.dataset = dataset
        self._row_check = RowCheck(dataset.schema)
        self._row_check.labels = frozenset(dataset.channels[LABEL])  # whatever its tags are
        self.parts: dict[tuple[Path, int], int] = {}
        """File and row group -> how many rows that has."""
        for path in dataset.files(mapping):
            footer = pq.read_metadata(path)
            for group in range(footer.num_row_groups):
                self.parts[path, group] = footer.row_group(group).num_rows

    def read(self, part: tuple[Path, int]) -> Iterator[CheckedRows]:
        """Read a row group, some rows at a time."""
        path, group = part
        channels, names = self.dataset.channels, checked_columns(self.dataset)
        (label,), history = channels[LABEL], next(iter(channels.get(POSITIVE_HISTORY, [])), "")
        with reading(f"{path}, row group {group}"), pq.ParquetFile(path) as file:
            row = sum(file.metadata.row_group(n).num_rows for n in range(group))
            for batch in row_pieces(file, group, names, BATCH_ROWS):
                file_order = (row + np.arange(batch.num_rows)) / file.metadata.num_rows
                columns = {name: decode(batch[name]) for name in names}
                self._check(path, row, columns)
                row += batch.num_rows
                items, widths = columns.pop(history, None), self._row_check.widths
                lists = {
                    name: column
                    for name, column in columns.items()
                    if column.offsets is not None and name not in widths
                }
                values = {n: _numbers(c) for n, c in columns.items() if n not in lists}
                for name in widths.keys() & values.keys():
                    values[name] = values[name].reshape(-1, widths[name])
                labels = values.pop(label).astype(np.int8)
                yield CheckedRows(labels, values, items, file_order, lists)

    def _check(self, path: Path, first: int, columns: dict[str, Column]) -> None:
        """Refuse missing values, and labels and ids that cannot be; any number may be."""

        def where(row: int) -> str:
            return f"{path}, row {first + row + 1}"

        for name, column in columns.items():
            if name not in self._row_check.largest and name not in self._row_check.labels:
                column = column._replace(values=column.values[:0])
            self._row_check(name, column, where)
        lists = {n: column.offsets for n, column in columns.items() if column.offsets is not None}
        self._row_check.lengths({name: np.diff(offsets) for name, offsets in lists.items()}, where)


def _numbers(column: Column) -> Array:
    values = column.values
    return values.astype(np.int8) if values.dtype == np.bool_ else values


def in_background(
    read: Callable[[Any], Iterable[CheckedRows]], parts: Iterable[Any]
) -> Iterator[CheckedRows]:
    """Read parts with as many threads as there are cores, in order, a few of them ahead."""
    workers = count_cores()
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[list[CheckedRows]]] = deque()
        for part in parts:
            waiting.append(pool.submit(lambda part: list(read(part)), part))
            if len(waiting) > workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
