"""The rows of a mapping as the checks see them, batch by batch, in little memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.cores import count_cores
from ...foundation.exceptions import MerlinSimError
from ...schemas.channels import LABEL, POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import domain_of
from ...schemas.parquet.footer import UNREADABLE, why
from ...schemas.parquet.row_pieces import row_pieces
from . import kernels

BATCH_ROWS = 1 << 16
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CheckedRows:
    """Some rows."""

    labels: Array
    """[rows] 0 and 1."""
    columns: dict[str, Array]
    """[rows] By name, the columns of one value a row: ids, or numbers."""
    lengths: Array | None
    """[rows] How long the histories are; None where there are none."""
    hashes: Array
    """[rows] Of label, columns and history: equal rows have equal ones."""
    last: Array | None = None
    """[rows] The last item of each history, 0 where it is empty; None where there are none."""
    ranks: Array | None = None
    """[rows] Where each row stands in its file, 0 to 1; None where rows are made."""

    @classmethod
    def of(
        cls,
        labels: Array,
        columns: dict[str, Array],
        history: tuple[Array, Array] | None,
        last: Array | None = None,
        ranks: Array | None = None,
    ) -> CheckedRows:
        """Hash rows whose histories have a hash and a length."""
        lengths = None if history is None else history[1]
        hashes = labels.astype(np.uint64) if history is None else history[0] + labels.astype("u8")
        for values in columns.values():
            kernels.add_to_hashes(hashes, _as_whole(values))
        return cls(labels, columns, lengths, hashes, last, ranks)


def _as_whole(values: Array) -> Array:
    if values.dtype.kind != "f":
        return values
    return (values.astype(np.float32) + 0).view(np.uint32).astype(np.int64)  # -0.0 is 0.0


@dataclass(frozen=True)
class StoredRows:
    """The rows of a mapping that has one row per sample.

    Args:
        dataset: The opened directory.
        mapping: ``train``, ``test``, ...
    """

    dataset: DatasetDirectory
    mapping: str

    @property
    def parts(self) -> list[tuple[Path, int]]:
        """Files and row groups."""
        parts = []
        for path in self.dataset.files(self.mapping):
            parts += [(path, group) for group in range(pq.read_metadata(path).num_row_groups)]
        return parts

    def rows_of(self, part: tuple[Path, int]) -> int:
        """How many rows a part has."""
        return int(pq.read_metadata(part[0]).row_group(part[1]).num_rows)

    def read(self, part: tuple[Path, int]) -> Iterator[CheckedRows]:
        """Read a row group, some rows at a time."""
        path, group = part
        channels = self.dataset.channels
        (label,) = channels[LABEL]
        histories = channels.get(POSITIVE_HISTORY, [])[:1]
        lists = {name for name, column in _columns(self.dataset).items() if column.is_list}
        single = [name for names in channels.values() for name in names if name not in lists]
        names = [label, *(name for name in single if name != label), *histories]
        try:
            with pq.ParquetFile(path) as file:
                row = first_row(file.metadata, group)
                of = file.metadata.num_rows
                for batch in row_pieces(file, group, names, BATCH_ROWS):
                    values = {name: whole_column(path, group, name, batch[name]) for name in names}
                    _refuse_strange_labels(path, row, label, _numbers(values[label]))
                    ranks = (row + np.arange(batch.num_rows)) / of
                    rows = self._checked(values, label, histories, ranks)
                    self._refuse_strange_ids(path, row, rows.columns)
                    row += batch.num_rows
                    yield rows
        except UNREADABLE as error:
            raise MerlinSimError(
                f"{path}, row group {group}: cannot be read ({why(error)})."
            ) from error

    def _checked(
        self, values: dict[str, pa.Array], label: str, histories: list[str], ranks: Array
    ) -> CheckedRows:
        history, last = None, None
        for name in histories:
            lists = values.pop(name)
            elements, offsets = np.asarray(lists.flatten()), _offsets(lists)
            history = kernels.hash_lists(elements, offsets)
            last = np.zeros(len(offsets) - 1, np.int64)
            some = np.diff(offsets) > 0
            last[some] = elements[offsets[1:][some] - 1]
        arrays = {name: _numbers(column) for name, column in values.items()}
        labels = arrays.pop(label).astype(np.int8)
        return CheckedRows.of(labels, arrays, history, last, ranks)

    def _refuse_strange_ids(self, path: Path, first: int, columns: dict[str, Array]) -> None:
        for name, values in columns.items():
            domain = domain_of(self.dataset.schema[name])
            if domain is None or not len(values):
                continue
            _, last = domain
            if values.min() < 0 or values.max() > last:
                row = int(np.argmax((values < 0) | (values > last)))
                raise MerlinSimError(
                    f"{path}, row {first + row + 1}: column {name}: expected an id of 0 to {last}, "
                    f"found {values[row]}."
                )


def _refuse_strange_labels(path: Path, first: int, name: str, labels: Array) -> None:
    strange = np.flatnonzero((labels != 0) & (labels != 1))
    if len(strange):
        row = int(strange[0])
        raise MerlinSimError(
            f"{path}, row {first + row + 1}: column {name}: expected a label of 0 or 1, "
            f"found {labels[row]}."
        )


def first_row(metadata: pq.FileMetaData, group: int) -> int:
    """The number of a row group's first row in its file."""
    return sum(metadata.row_group(before).num_rows for before in range(group))


def _columns(dataset: DatasetDirectory) -> Any:
    return dataset.schema.column_schemas


def whole_column(path: Path, group: int, name: str, column: pa.Array) -> pa.Array:
    """Refuse a column with a missing value."""
    inner = column.flatten() if pa.types.is_nested(column.type) else column
    if column.null_count or inner.null_count:
        raise MerlinSimError(
            f"{path}, row group {group}: column {name} holds a missing value. Received: null."
        )
    return column


def _offsets(lists: pa.Array) -> Array:
    if pa.types.is_fixed_size_list(lists.type):
        offsets: Array = np.arange(len(lists) + 1) * int(lists.type.list_size)
    else:
        offsets = np.asarray(lists.offsets).astype(np.int64)
    offsets -= offsets[0]
    return offsets


def _numbers(column: pa.Array) -> Array:
    values: Array = np.asarray(column)
    if pa.types.is_boolean(column.type):
        values = values.astype(np.int8)
    return values


def in_background(read: Callable[[Any], Iterable[CheckedRows]], parts: list[Any]) -> Iterator[Any]:
    """Read parts with as many threads as there are cores, in order, a few of them ahead."""
    workers = count_cores()
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[list[CheckedRows]]] = deque()
        for part in parts:
            waiting.append(pool.submit(_read_all, read, part))
            if len(waiting) > workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _read_all(read: Callable[[Any], Iterable[CheckedRows]], part: Any) -> list[CheckedRows]:
    return list(read(part))
