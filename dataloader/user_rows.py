"""The users of a dataset directory, row group by row group: read by Merlin's loader, checked."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
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
from ..schemas.channels import TARGET_ITEM_FEATURES, USER_NUMERICAL
from ..schemas.dataset import DatasetDirectory
from ..schemas.parquet import require_whole_footer
from ..schemas.users_layout import JOINS, OF_USERS, UsersLayout
from .arrow_columns import decode
from .behaviour_samples import (
    EARLIER,
    HASH,
    KNOWN,
    LABEL,
    NOW,
    OCCURRENCES,
    SEEN,
    STORED,
    TIMES,
    Users,
)
from .encodings import BY_SECONDS
from .positions import Positions, counted_before, find_positions
from .row_check import READ_ERRORS, DataError, readable
from .sample_columns import CHANGED, SampleColumns, id_type
from .stored_rows import batches_of, of_file, version
from .user_check import StoredUsers, UserCheck

Array = npt.NDArray[Any]
USERS_AT_A_TIME = 1 << 16
BYTES_OF_INTERACTION = 16
"""What an interaction takes on the device: its item, whose it is, and on the way there."""


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
    """[users] By feature that belongs to the user; one of them identifies users."""
    items: Array
    """[interactions] Of all histories."""
    starts: Array
    """[users + 1] Where each history begins among them."""
    targets: Array
    """[positions] The items that may be predicted."""
    positions: Positions
    of_positions: Mapping[str, Array]
    """[positions] As of :class:`~.behaviour_samples.Users`."""
    ranges: Mapping[str, tuple[Array, Array]]
    """[users] By mapping, the first position that is a sample, and the one after the last."""
    group_starts: Array
    """[row groups + 1] The first user of each."""
    more: Mapping[str, Array] = field(default_factory=dict)
    """``times`` and ``earlier``, as of Users; [interactions] the order of their times among
    those of changes, where features of whole histories are counted."""


class UserRows:
    """The users of a mapping; without ``columns`` their samples are counted alone."""

    def __init__(
        self,
        dataset: DatasetDirectory,
        mapping: str,
        columns: SampleColumns | None = None,
        on_cpu: bool = False,
    ) -> None:
        self._on_cpu = True if on_cpu else None  # None: as Merlin finds it
        layout = dataset.users
        assert layout is not None
        self.mapping = mapping
        self.layout: UsersLayout = layout
        self.compared_times = {} if columns is None else columns.compared_times
        self._of_items = columns
        self.lifetimes = {} if columns is None else columns.lifetime_counts
        reads_times = columns is not None and (columns.intervals or self._by_seconds)
        self.times = layout.times if reads_times else None
        self.files = dataset.stored_files(mapping)
        spec = dataset.spec
        names = [name for channel in OF_USERS for name in spec.channel_spec.get(channel, ())]
        self.largest = {name: int(spec.feature_spec[name].cardinality or 0) for name in names}
        """By feature of users and interactions, its last id; 0 of numbers."""
        self.numbers = frozenset(spec.channel_spec.get(USER_NUMERICAL, ()))
        item = spec.feature_spec[spec.channel_spec[TARGET_ITEM_FEATURES][0]]
        self.last_item = int(item.cardinality or 0)
        self.groups: list[RowGroup] = []
        self.parts: list[int] = []
        """Numbers of the row groups that have samples."""
        self.part_positions: list[Array] = []
        """Of each part, how many samples every user has."""
        self._positions: list[str] = []
        self._footers: dict[Path, pq.FileMetaData] = {}
        for path in self.files:
            self._add_file(path)

    def _add_file(self, path: Path) -> None:
        first_row, columns = 0, list(self.layout.positions[self.mapping])
        with readable(path), pq.ParquetFile(path, memory_map=True) as file:
            require_whole_footer(file)
            self._footers[path] = file.metadata
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
        named = {m: pair for m, pair in self.layout.positions.items() if set(pair) <= stored}
        self._positions = [name for pair in named.values() for name in pair]

    @property
    def _by_seconds(self) -> list[str]:
        """The compared times that are made of times in seconds."""
        return [name for name in BY_SECONDS if name in self.compared_times]

    @property
    def key(self) -> tuple[Any, ...]:
        """What distinguishes these users: the same of all mappings of the same files."""
        files = tuple((str(group.path), group.version) for group in self.groups)
        compared_times = (*self.compared_times, *self.lifetimes)
        return files, tuple(self._columns), compared_times, self.last_item, repr(self.layout)

    @property
    def schema(self) -> Schema:
        """What a Merlin loader has to read of the files."""
        lists = set(self._lists)
        return Schema(
            [ColumnSchema(n, is_list=n in lists, is_ragged=n in lists) for n in self._columns]
        )

    @cached_property
    def _lists(self) -> list[str]:
        changed_at = self.layout.changed_at if CHANGED in self.compared_times else None
        lists = [name for name in self.layout.lists if name != self.layout.changed_at]
        return [*lists, *filter(None, (self.times, changed_at))]

    @cached_property
    def _columns(self) -> list[str]:
        once = (*self.largest, *self._positions, *self._user_columns)
        return list(dict.fromkeys([*once, *self._lists]))

    @property
    def _user_columns(self) -> list[str]:
        """The columns of one value per user that are no features."""
        return [*filter(None, (self.layout.samples_before, self.layout.user_hash))]

    @property
    def bytes_of_interaction(self) -> int:
        """What one takes on the device: its item, whose it is, and its columns."""
        more = len(self._lists) - 1 + len(self._by_seconds) + len(self.lifetimes)
        more += self.layout.negatives_not_in_history
        return BYTES_OF_INTERACTION + 8 * more

    @property
    def bytes_of_user(self) -> int:
        """What a user takes there: where the interactions begin, and what features there are."""
        once = len(self.largest) - len(self.layout.per_interaction) + len(self._user_columns)
        return 8 * (2 + once)

    def read(self, numbers: Sequence[int]) -> UserBlock:
        """Read and check the users of some row groups, in this order."""
        groups = [self.groups[number] for number in numbers]
        self._refuse_changes(groups)
        try:
            columns = self._read(numbers)
        except (*READ_ERRORS, TypeError) as error:
            self._refuse_damage(groups)
            raise DataError(f"{groups[0].path} cannot be read: {error}") from error
        return self.block_of(columns, groups)

    def read_positions(self, number: int) -> tuple[Positions, Array, Array]:
        """Of a row group, what may be predicted; and [users], where a mapping's samples are."""
        group, layout = self.groups[number], self.layout
        lists = [name for name in (layout.roles, layout.same_time) if name is not None]
        begin, end = layout.positions[self.mapping]
        self._refuse_changes([group])
        with readable(group.path):
            footer = self._footers[group.path]
            with pq.ParquetFile(group.path, metadata=footer, memory_map=True) as file:
                table = file.read_row_group(group.number, columns=[*lists, begin, end])
            starts = np.zeros(group.users + 1, np.int64)
            values: dict[str | None, Array] = {}
            for name in lists:
                column = table[name].combine_chunks()
                starts = np.asarray(column.offsets).astype(np.int64) - column.offsets[0].as_py()
                values[name] = np.asarray(column.flatten())
            begins, ends = (np.asarray(table[name]).astype(np.int64) for name in (begin, end))
        found = find_positions(starts, values.get(layout.roles), values.get(layout.same_time))
        return found, begins, np.minimum(ends, np.diff(found.starts))

    def _read(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Have Merlin read row groups: arrays, and of lists values with offsets."""
        sources: dict[Path, merlin.io.Dataset] = {}
        batches = []
        for number in numbers:  # Merlin would have several of them in memory at a time
            group = self.groups[number]
            if not group.users:  # Merlin would wait for ever
                continue
            if group.path not in sources:  # it puts several files in an order of its own
                sources[group.path] = of_file(str(group.path.absolute()), self.schema, self._on_cpu)
            loader = UsersLoader(sources[group.path], USERS_AT_A_TIME, shuffle=False)
            loader.indices = loader.indices[group.number : group.number + 1]
            batches.append(batches_of(loader, group.users))
        return read_columns(*batches)

    def block_of(self, columns: Mapping[str, Any], groups: list[RowGroup]) -> UserBlock:
        """Check users of row groups that a Merlin loader has read, unshuffled.

        See :func:`read_columns`.
        """
        layout = self.layout
        may_be_fractions = {*self.numbers, self.times}
        for name, values in columns.items():
            values = values[0] if isinstance(values, tuple) else values
            if values.dtype.kind == "f" and (
                name not in may_be_fractions or np.isnan(values).any()
            ):
                self._refuse_damage(groups)
        lengths = [group.users for group in groups]
        group_starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        read = len(columns[next(iter(self.largest))])
        if read != group_starts[-1]:
            raise DataError(
                f"{self.files[0]} and what follows: expected {group_starts[-1]} rows of users. "
                f"Merlin's loader read {read}."
            )
        single = {
            name: values.astype(np.float32 if name in self.numbers else np.int64, copy=False)
            for name, values in columns.items()
            if not isinstance(values, tuple)
        }
        features = {n: single[n] for n in self.largest if n not in layout.per_interaction}
        ranges = {
            mapping: (single[begin], single[end])
            for mapping, (begin, end) in layout.positions.items()
            if begin in single and end in single
        }
        lists = {name: columns[name] for name in self._lists}
        items, starts = lists[layout.history]
        check = UserCheck(layout, self.largest, self.numbers, self.last_item)
        stored = StoredUsers(partial(_origin, groups, group_starts), features, lists, ranges)
        check.lists(stored)
        values = {name: values for name, (values, _) in lists.items()}
        found = find_positions(
            starts, *(values.get(n or "") for n in (layout.roles, layout.same_time))
        )
        check.positions(stored, found.starts)
        more = {}
        of_positions = {name: values[name] for name in layout.per_interaction}
        if CHANGED in self.compared_times:
            of_positions[CHANGED] = self.compared_times[CHANGED].indices(
                values[layout.changed_at or ""]
            )
            if self.lifetimes:
                more[CHANGED] = of_positions[CHANGED]
        if self.times is not None:
            of_positions[NOW] = more[TIMES] = values[self.times].astype(np.float64, copy=False)
        for name in self._by_seconds:
            of_positions[name] = self.compared_times[name].indices(more[TIMES])
        columns = {EARLIER: layout.samples_before, HASH: layout.user_hash}
        more |= {name: single[column] for name, column in columns.items() if column is not None}
        targets = items
        if found.interactions is None:
            of_positions.pop(NOW, None)  # the same as the times of the history
        else:
            of_positions = {
                name: column[found.interactions] for name, column in of_positions.items()
            }
            joins = (values[layout.roles or ""] & JOINS) > 0
            targets, items = items[found.interactions], items[joins]
            starts = counted_before(joins)[starts]
            more |= {name: more[name][joins] for name in (TIMES, CHANGED) if name in more}
        if found.seen is not None:
            of_positions[SEEN] = found.seen
        if found.labels is not None:
            of_positions[LABEL] = found.labels
        return UserBlock(
            features, items, starts, targets, found, of_positions, ranges, group_starts, more
        )

    @staticmethod
    def _refuse_changes(groups: list[RowGroup]) -> None:
        for group in groups:
            if version(str(group.path)) != group.version:
                raise DataError(f"{group.path} changed while it was read.")

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
                row = decode(table[name]).missing
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
        """Put users on the device, those of some row groups, by ``numbers``, or of all.

        Zeros fill them up to so many ``interactions`` and ``users``.
        """
        kind, found = id_type(self.last_item), block.positions
        count, is_all = len(block.starts) - 1, found.interactions is None
        # A user may have samples and no history, which begins where the last one ends.
        history = interactions if is_all else max(interactions, len(block.items)) + 1
        rows = np.repeat(np.arange(count), np.diff(found.starts))

        def filled(values: Array, size: int, dtype: tf.DType) -> tf.Tensor:
            lacking = max(0, size - len(values))
            return tf.constant(np.pad(values, (0, lacking)) if lacking else values, dtype)

        def features(values: Mapping[str, Array], size: int) -> dict[str, tf.Tensor]:
            return {
                name: filled(column, size, self._type_of(name, column))
                for name, column in values.items()
            }

        def ascending(keys: Array) -> tf.Tensor:
            filler = np.full(max(0, history - len(keys)), np.iinfo(np.int64).max)
            return tf.constant(np.concatenate([np.sort(keys), filler]))

        kinds = {TIMES: (history, tf.float64), EARLIER: (users, tf.int64), HASH: (users, tf.int64)}
        more = {n: filled(block.more[n], *kinds[n]) for n in kinds if n in block.more}
        if self.layout.negatives_not_in_history:
            of_item = np.repeat(np.arange(count), np.diff(block.starts))
            more[KNOWN] = ascending(of_item * (self.last_item + 1) + block.items)
        for feature in self.lifetimes.values():
            assert self._of_items is not None
            times = {name: block.more[name] for name in (CHANGED,) if name in block.more}
            ids = self._of_items.feature_of(feature, tf.constant(block.items), times).numpy()
            # Each occurrence by its id, and among equal ids by where it stands.
            span = max(history, len(ids)) + 1
            more[OCCURRENCES.format(feature)] = ascending(ids * span + np.arange(len(ids)))
        if numbers is not None:
            first_rows = np.cumsum([0, *(group.users for group in self.groups)])
            chosen = [np.arange(first_rows[n], first_rows[n + 1]) for n in numbers]
            more[STORED] = filled(np.concatenate(chosen), users, tf.int64)
        items = filled(block.items, history, kind)
        starts = filled(block.starts[:-1], users, id_type(int(block.starts[-1])))
        return Users(
            features(block.features, users),
            items,
            starts,
            items if is_all else filled(block.targets, interactions, kind),
            starts if is_all else filled(found.starts[:-1], users, id_type(int(found.starts[-1]))),
            filled(rows, interactions, id_type(count + 1)),
            features(block.of_positions, interactions),
            more,
        )

    def _type_of(self, name: str, values: Array) -> tf.DType:
        if name in self.numbers:
            return tf.float32
        if values.dtype.kind == "f":
            return tf.float64
        return id_type(self.largest.get(name) or int(values.max(initial=0)))


def _origin(groups: list[RowGroup], starts: Array, user: int) -> str:
    """Name the file and row of a user, of those of some row groups one after the other."""
    index = int(np.searchsorted(starts, user, side="right")) - 1
    group = groups[index]
    return f"{group.path}, row {group.first_row + user - int(starts[index]) + 1}"


def read_columns(*loaders: Generator[Any, None, None]) -> dict[str, Any]:
    """Read Merlin's loaders: by column an array, of lists values with offsets.

    Args:
        loaders: Their batches, as :func:`~.stored_rows.batches_of` gives them.
    """
    pieces: dict[str, list[Array]] = {}
    for batches in loaders:
        with closing(batches):
            for inputs, _ in batches:
                for name, values in inputs.items():
                    known = pieces.setdefault(name, [])
                    found = values.numpy()
                    if known and name.endswith(OFFSETS):  # each batch counts from 0
                        found = found[1:] + known[-1][-1]
                    known.append(found)
    joined = {name: np.concatenate(pieces.pop(name)) for name in list(pieces)}
    columns: dict[str, Any] = {n: v for n, v in joined.items() if not n.endswith((VALUES, OFFSETS))}
    for name in joined:
        if name.endswith(VALUES):
            base = name.removesuffix(VALUES)
            columns[base] = joined[name], joined[base + OFFSETS]
    return columns


def _interactions(file: pq.ParquetFile, group: int, history: str) -> int:
    """How many a row group has, by its footer; an empty or missing history counts as one."""
    metadata = file.metadata.row_group(group)
    chunks = (metadata.column(index) for index in range(metadata.num_columns))
    return sum(c.num_values for c in chunks if c.path_in_schema.startswith(f"{history}."))


def _count(path: Path, first_row: int, table: pa.Table, columns: list[str], most: int) -> Array:
    """How many samples each user has; the rest of what can be wrong is seen when they are read."""

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
