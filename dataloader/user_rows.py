"""The users of a dataset directory, row group by row group: read by Merlin's loader, checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import merlin.dataloader.tensorflow
import merlin.io
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema

from ..foundation.batch_names import OFFSETS, VALUES
from ..schemas.channels import TARGET_ITEM_FEATURES, USER_FEATURES
from ..schemas.dataset import DatasetDirectory
from ..schemas.parquet.whole_footer import require_whole_footer
from .behaviour_samples import KNOWN, SAME_TIME, STORED, TIMES, Users
from .data_error import READ_ERRORS, DataError
from .sample_columns import id_type
from .stored_rows import of_file, version
from .user_check import StoredUsers, UserCheck

Array = npt.NDArray[Any]
USERS_AT_A_TIME = 1 << 16


class UsersLoader(merlin.dataloader.tensorflow.Loader):
    """Merlin's loader, as it is, of rows of users.

    On a CPU Merlin flattens lists in Python: the six million interactions of a hundred thousand
    users take 16 s, here 0.1 s. That alone is replaced.
    """

    def _convert_df_to_tensors(self, gdf: Any) -> dict[str, Any]:
        if self.device != "cpu":
            return super()._convert_df_to_tensors(gdf)  # type: ignore[no-any-return]
        columns: dict[str, Any] = {}
        for name in gdf.columns:
            values = gdf[name].to_numpy()
            if values.dtype != object:
                columns[name] = values
                continue
            offsets = np.zeros(len(values) + 1, np.int64)
            np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
            columns[name] = np.concatenate(values), offsets
        return columns


@dataclass(frozen=True)
class RowGroup:
    """A row group of users."""

    path: Path
    number: int
    """In its file."""
    first_row: int
    users: int
    interactions: int
    """How many there are at most: an empty history counts as one."""
    version: tuple[int, ...]
    """The state of the file when it was opened."""


@dataclass(frozen=True)
class UserBlock:
    """The users of some row groups, as arrays."""

    features: Mapping[str, Array]
    """[users] By user feature, its ids; the first tells users apart."""
    items: Array
    """[interactions] All histories' items."""
    starts: Array
    """[users + 1] Where each history begins among them."""
    ranges: Mapping[str, tuple[Array, Array]]
    """[users] By mapping, the first position that is a sample, and the one after the last."""
    group_starts: Array
    """[row groups + 1] The first user of each."""
    times: Array | None = None
    """[interactions] When each was, in seconds; None where nobody asks."""
    same_time: Array | None = None
    """[interactions] How many of those before each have its own time; None where all that stands
    before a sample is seen."""


class UserRows:
    """The users of a mapping.

    Args:
        dataset: an opened directory of users.
        mapping: ``train``, ``test``, ...
        with_times: read the times of interactions too.
        on_cpu: read on the processor, where there is a GPU too.

    Raises:
        DataError: naming a file that cannot be read, or whose positions cannot be.
    """

    def __init__(
        self,
        dataset: DatasetDirectory,
        mapping: str,
        with_times: bool = False,
        on_cpu: bool = False,
    ) -> None:
        """Read of every user how many samples there are."""
        self._on_cpu = True if on_cpu else None  # None: as Merlin finds it
        layout = dataset.users
        assert layout is not None
        self.mapping = mapping
        self.layout = layout
        self.times = layout.times if with_times else None
        self.files = dataset.stored_files(mapping)
        spec = dataset.spec
        ids = {name: spec.feature_spec[name] for name in spec.channel_spec[USER_FEATURES]}
        self.largest = {name: int(feature.cardinality or 0) for name, feature in ids.items()}
        item = spec.feature_spec[spec.channel_spec[TARGET_ITEM_FEATURES][0]]
        self.last_item = int(item.cardinality or 0)
        self.groups: list[RowGroup] = []
        self.parts: list[int] = []
        """Numbers of the row groups that have samples."""
        self.part_positions: list[Array] = []
        """Of each part, how many samples every user has."""
        self._positions: list[str] = []
        for path in self.files:
            self._add_file(path)

    def _add_file(self, path: Path) -> None:
        first_row, columns = 0, list(self.layout.positions[self.mapping])
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                require_whole_footer(file)
                stored = set(file.schema_arrow.names)
                for number in range(file.metadata.num_row_groups):
                    rows = file.metadata.row_group(number).num_rows
                    table = file.read_row_group(number, columns=columns)
                    most = _interactions(file, number, self.layout.history)
                    counts = _count(path, first_row, table, columns, most)
                    if counts.sum():
                        self.parts.append(len(self.groups))
                        self.part_positions.append(counts)
                    state = version(str(path))
                    self.groups.append(RowGroup(path, number, first_row, rows, most, state))
                    first_row += rows
        except READ_ERRORS as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        named = {m: pair for m, pair in self.layout.positions.items() if set(pair) <= stored}
        self._positions = [name for pair in named.values() for name in pair]

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells these users from others: the same of all mappings of the same files."""
        files = tuple((str(group.path), group.version) for group in self.groups)
        return files, tuple(self._columns), self.last_item, self.layout.negatives_not_in_history

    @property
    def schema(self) -> Schema:
        """What a Merlin loader has to read of the files."""
        lists = {self.layout.history, self.times, self.layout.same_time}
        return Schema(
            [ColumnSchema(n, is_list=n in lists, is_ragged=n in lists) for n in self._columns]
        )

    @cached_property
    def _columns(self) -> list[str]:
        lists = [self.layout.history, *filter(None, (self.times, self.layout.same_time))]
        return list(dict.fromkeys([*self.largest, *self._positions, *lists]))

    def read(self, numbers: Sequence[int]) -> UserBlock:
        """Read and check the users of some row groups, in this order.

        Raises:
            MerlinSimError: where one cannot be used, or a file is not as it was.
        """
        groups = [self.groups[number] for number in numbers]
        for group in groups:
            if version(str(group.path)) != group.version:
                raise DataError(f"{group.path} changed while it was read.")
        try:
            columns = self._read(numbers)
        except (*READ_ERRORS, TypeError) as error:
            self._refuse_damage(groups)
            raise DataError(f"{groups[0].path} cannot be read: {error}") from error
        return self.block_of(columns, numbers)

    def read_seen(self, number: int) -> tuple[Array, Array, Array]:
        """Of a row group, how many of its own time stand before each interaction.

        Returns:
            [interactions] the counts, [users + 1] where each history begins, and [users] where its
            samples begin.
        """
        group, begin = self.groups[number], self.layout.positions[self.mapping][0]
        assert self.layout.same_time is not None
        try:
            with pq.ParquetFile(group.path, memory_map=True) as file:
                table = file.read_row_group(group.number, columns=[self.layout.same_time, begin])
            counts = table[self.layout.same_time].combine_chunks()
            starts = np.asarray(counts.offsets).astype(np.int64)
            values = np.asarray(counts.flatten())
            return values, starts, np.asarray(table[begin]).astype(np.int64)
        except READ_ERRORS as error:
            raise DataError(f"{group.path} cannot be read as parquet: {error}") from error

    def _read(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Have Merlin read row groups: arrays, and of lists values with offsets."""
        sources: dict[Path, merlin.io.Dataset] = {}
        loaders = []
        for number in numbers:  # Merlin would have several of them in memory at a time
            group = self.groups[number]
            if not group.users:  # Merlin would wait for ever
                continue
            if group.path not in sources:  # it puts several files in an order of its own
                sources[group.path] = of_file(str(group.path.absolute()), self.schema, self._on_cpu)
            loader = UsersLoader(sources[group.path], USERS_AT_A_TIME, shuffle=False)
            loader.indices = loader.indices[group.number : group.number + 1]
            loaders.append(loader)
        return read_columns(*loaders)

    def block_of(
        self, columns: Mapping[str, Any], numbers: Sequence[int] | None = None
    ) -> UserBlock:
        """Check users that a Merlin loader has read, unshuffled: see :func:`read_columns`.

        Args:
            columns: Of these users.
            numbers: Of the row groups that they are; None for all.
        """
        layout = self.layout
        groups = self.groups if numbers is None else [self.groups[number] for number in numbers]
        for name, values in columns.items():
            values = values[0] if isinstance(values, tuple) else values
            if values.dtype.kind == "f" and (name != self.times or np.isnan(values).any()):
                self._refuse_damage(groups)
        lengths = [group.users for group in groups]
        group_starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        read = len(columns[next(iter(self.largest))])
        if read != group_starts[-1]:
            raise DataError(
                f"{self.files[0]} and what follows: expected {group_starts[-1]} rows of users. "
                f"Merlin's loader read {read}."
            )
        whole = {
            name: values.astype(np.int64, copy=False)
            for name, values in columns.items()
            if not isinstance(values, tuple)
        }
        features = {name: whole[name] for name in self.largest}
        ranges = {
            mapping: (whole[begin], whole[end])
            for mapping, (begin, end) in layout.positions.items()
            if begin in whole and end in whole
        }
        items, starts = columns[layout.history]
        times, same_time = columns.get(self.times or ""), columns.get(layout.same_time or "")
        names = (layout.positions, self.times, layout.same_time)
        check = UserCheck(self.largest, layout.history, self.last_item, *names)
        origins = _Origins(groups, group_starts)
        check(StoredUsers(origins, features, items, starts, ranges, times, same_time))
        if times is not None:
            times = times[0].astype(np.float64, copy=False)
        if same_time is not None:
            same_time = same_time[0]
        return UserBlock(features, items, starts, ranges, group_starts, times, same_time)

    def _refuse_damage(self, groups: list[RowGroup]) -> None:
        """Name the file and row where something is missing or cannot be decoded."""
        for group in groups:
            try:
                with pq.ParquetFile(group.path) as file:
                    table = file.read_row_group(group.number, columns=self._columns)
            except READ_ERRORS as error:
                raise DataError(
                    f"{group.path} is damaged in row group {group.number}, which begins with row"
                    f" {group.first_row + 1}: {error}"
                ) from error
            for name in table.column_names:
                row = first_missing(table[name].combine_chunks())
                if row is not None:
                    raise DataError(
                        f"{group.path}, row {group.first_row + row + 1}: column {name} holds a"
                        " missing value. Received: null."
                    )

    def tensors(
        self,
        block: UserBlock,
        interactions: int = 0,
        users: int = 0,
        numbers: Sequence[int] | None = None,
    ) -> Users:
        """Put users on the device.

        Args:
            block: The users.
            interactions: Fill them up with zeros to so many.
            users: The same.
            numbers: Of the row groups that they are; None for all.
        """
        kind = id_type(self.last_item)
        rows = np.repeat(np.arange(len(block.starts) - 1), np.diff(block.starts))

        def filled(values: Array, size: int, dtype: tf.DType) -> tf.Tensor:
            lacking = max(0, size - len(values))
            return tf.constant(np.pad(values, (0, lacking)) if lacking else values, dtype)

        more = {}
        if block.times is not None:
            more[TIMES] = filled(block.times, interactions, tf.float64)
        if block.same_time is not None:
            more[SAME_TIME] = filled(block.same_time, interactions, tf.int64)
        if self.layout.negatives_not_in_history:
            known = np.sort(rows * (self.last_item + 1) + block.items)
            filler = np.full(max(0, interactions - len(known)), np.iinfo(np.int64).max)
            more[KNOWN] = tf.constant(np.concatenate([known, filler]))
        if numbers is not None:
            first_rows = np.cumsum([0, *(group.users for group in self.groups)])
            chosen = [np.arange(first_rows[n], first_rows[n + 1]) for n in numbers]
            more[STORED] = filled(np.concatenate(chosen), users, tf.int64)
        return Users(
            {n: filled(i, users, id_type(self.largest[n])) for n, i in block.features.items()},
            filled(block.items, interactions, kind),
            filled(block.starts[:-1], users, id_type(int(block.starts[-1]))),
            filled(rows, interactions, id_type(len(block.starts))),
            more,
        )


class _Origins:
    """Names the file and row of a user, of those of some row groups one after the other."""

    def __init__(self, groups: list[RowGroup], starts: Array) -> None:
        self._groups, self._starts = groups, starts

    def __call__(self, user: int) -> str:
        place = int(np.searchsorted(self._starts, user, side="right")) - 1
        group = self._groups[place]
        return f"{group.path}, row {group.first_row + user - int(self._starts[place]) + 1}"


def read_columns(*loaders: merlin.dataloader.tensorflow.Loader) -> dict[str, Any]:
    """Read all rows of Merlin's loaders: by column an array, of lists values with offsets."""
    batches: dict[str, list[Array]] = {}
    for loader in loaders:
        try:
            for inputs, _ in loader:
                for name, values in inputs.items():
                    known = batches.setdefault(name, [])
                    found = values.numpy()
                    if known and name.endswith(OFFSETS):  # each batch counts from 0
                        found = found[1:] + known[-1][-1]
                    known.append(found)
        finally:
            loader.stop()
    joined = {name: np.concatenate(batches.pop(name)) for name in list(batches)}
    columns: dict[str, Any] = {n: v for n, v in joined.items() if not n.endswith((VALUES, OFFSETS))}
    for name in joined:
        if name.endswith(VALUES):
            base = name.removesuffix(VALUES)
            columns[base] = joined[name], joined[base + OFFSETS]
    return columns


def first_missing(column: pa.Array) -> int | None:
    """The first row that is missing, or a list with something missing in it.

    >>> first_missing(pa.array([[1], [2, None], None]))
    1
    """
    rows: Iterator[int] = iter(np.flatnonzero(np.asarray(column.is_null())))
    first = next(rows, None)
    if pa.types.is_nested(column.type):
        inner = np.flatnonzero(np.asarray(column.flatten().is_null()))
        if len(inner):
            lengths = np.asarray(column.value_lengths().fill_null(0))
            row = int(np.searchsorted(np.cumsum(lengths), inner[0], side="right"))
            first = row if first is None else min(first, row)
    return None if first is None else int(first)


def _interactions(file: pq.ParquetFile, group: int, history: str) -> int:
    """How many a row group has, by its footer; an empty or missing history counts as one."""
    metadata = file.metadata.row_group(group)
    chunks = (metadata.column(place) for place in range(metadata.num_columns))
    return sum(c.num_values for c in chunks if c.path_in_schema.startswith(f"{history}."))


def _count(path: Path, first_row: int, table: pa.Table, columns: list[str], most: int) -> Array:
    """How many samples each user has; the rest of what can be wrong is seen when they are read.

    Args:
        path: The file.
        first_row: The number of the table's first row.
        table: The columns.
        columns: Of the first position that is a sample, and of the one after the last.
        most: No history of the table is longer.
    """

    def refuse(row: int, what: str, received: object) -> None:
        raise DataError(f"{path}, row {first_row + row + 1}: {what} Received: {received}.")

    for name in columns:
        if table[name].null_count:
            row = int(np.argmax(table[name].is_null()))
            refuse(row, f"column {name} holds a missing value.", "null")
    begins, ends = (np.asarray(table[name]).astype(np.int64) for name in columns)
    wrong = (begins < 0) | (begins > ends)
    if wrong.any():
        row = int(np.argmax(wrong))
        received = " and ".join(str(table[name][row].as_py()) for name in columns)
        what = f"columns {' and '.join(columns)} should hold a position of the history and one"
        refuse(row, f"{what} that is not before it.", received)
    if (ends > most).any():
        row = int(np.argmax(ends > most))
        what = f"column {columns[1]} should not lie beyond the history's end: all users of the row"
        refuse(row, f"{what} group have {most} interactions together.", ends[row])
    return ends - begins
