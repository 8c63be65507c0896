"""Where the feed's users come from: the row groups of the users' files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...schemas.channels import TARGET_ITEM_FEATURES, USER_FEATURES
from ...schemas.dataset import DatasetDirectory
from ..data_error import READ_ERRORS, DataError
from ..rows.decoded_rows import Column, DecodedRows, ListColumn, decode
from ..rows.footer import require_whole_footer
from ..rows.row_source import version
from ..user_check import StoredUsers, UserCheck
from .drawing import own_items
from .user_block import Array, UserBlock


@dataclass(frozen=True)
class UserPart:
    """A row group of users."""

    path: Path
    group: int
    first_row: int
    version: tuple[int, ...]
    """The state of the file when it was opened."""


class UserRows:
    """The users of a mapping, row group by row group; about one of them is in memory at a time.

    Args:
        dataset: an opened directory of users.
        mapping: ``train`` or ``test``.
        with_times: read the times of interactions too.

    Raises:
        DataError: naming a file that cannot be read, or whose positions cannot be.
    """

    def __init__(self, dataset: DatasetDirectory, mapping: str, with_times: bool = False) -> None:
        """Read of every user how many samples there are."""
        layout = dataset.users
        assert layout is not None
        spec = dataset.spec
        self.mapping = mapping
        self.history = layout.history
        self.positions = layout.positions
        self.times = layout.times if with_times else None
        self.same_time = layout.same_time
        self.knows_own = layout.negatives_not_in_history
        ids = {name: spec.feature_spec[name] for name in spec.channel_spec[USER_FEATURES]}
        self.largest = {name: int(feature.cardinality or 0) for name, feature in ids.items()}
        item = spec.feature_spec[spec.channel_spec[TARGET_ITEM_FEATURES][0]]
        self.last_item = int(item.cardinality or 0)
        self.parts: list[UserPart] = []
        self.part_positions: list[Array] = []
        """Of each part, how many samples every user has."""
        for path in dataset.stored_files(mapping):
            self._add_file(path)

    def _add_file(self, path: Path) -> None:
        first_row = 0
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                require_whole_footer(file)
                for group in range(file.metadata.num_row_groups):
                    rows = file.metadata.row_group(group).num_rows
                    columns = list(self.positions[self.mapping])
                    table = file.read_row_group(group, columns=columns)
                    most = self._interactions(file, group)
                    counts = _count(path, first_row, table, columns, most)
                    if counts.sum():
                        self.parts.append(UserPart(path, group, first_row, version(str(path))))
                        self.part_positions.append(counts)
                    first_row += rows
        except READ_ERRORS as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error

    def _interactions(self, file: pq.ParquetFile, group: int) -> int:
        """How many a row group has, by its footer; an empty or missing history counts as one."""
        metadata = file.metadata.row_group(group)
        chunks = (metadata.column(place) for place in range(metadata.num_columns))
        below = f"{self.history}."
        return sum(c.num_values for c in chunks if c.path_in_schema.startswith(below))

    def read(self, number: int) -> UserBlock:
        """Decode and check the users of a part.

        Raises:
            MerlinSimError: where one cannot be used, or the file is not as it was.
        """
        part = self.parts[number]
        if version(str(part.path)) != part.version:
            raise DataError(f"{part.path} changed while it was read.")
        decoded, named = self._decode(part)
        columns = decoded.columns
        for name, column in columns.items():
            if column.missing is not None:
                raise DataError(
                    f"{decoded.where(column.missing)}: column {name} holds a"
                    " missing value. Received: null."
                )
        history = columns[self.history]
        assert isinstance(history, ListColumn)
        lists = (self.history, self.times, self.same_time)
        singles = {n: c for n, c in columns.items() if n not in lists}
        whole = {name: column.values.astype(np.int64) for name, column in singles.items()}
        stored = StoredUsers(
            str(part.path),
            part.first_row,
            {name: whole[name] for name in self.largest},
            history.values,
            history.offsets.astype(np.int64),
            {mapping: (whole[begin], whole[end]) for mapping, (begin, end) in named.items()},
            self._list_of(columns, self.times, np.float64),
            self._list_of(columns, self.same_time, np.int64),
        )
        names = (self.positions, self.times, self.same_time)
        check = UserCheck(self.largest, self.history, self.last_item, *names)
        check(stored)
        kind = np.int32 if self.last_item < 2**31 else np.int64
        items = history.values.astype(kind, copy=False)
        users, positions = dict(stored.users), stored.positions[self.mapping]
        own = own_items(items, stored.starts) if self.knows_own else None
        times = None if stored.times is None else stored.times[0]
        same_time = None if stored.same_time is None else stored.same_time[0]
        return UserBlock(users, items, stored.starts, *positions, times, own, same_time)

    def read_seen(self, number: int) -> tuple[Array, Array, Array] | None:
        """Of a part's users, how many of its own time stand before each interaction.

        Returns:
            [interactions] the counts, [users + 1] where each history begins, and [users] where its
            samples begin; None where all that stands before a sample is seen.
        """
        if self.same_time is None:
            return None
        part = self.parts[number]
        begin, _ = self.positions[self.mapping]
        try:
            with pq.ParquetFile(part.path, memory_map=True) as file:
                table = file.read_row_group(part.group, columns=[self.same_time, begin])
            columns = decode(table, str(part.path), part.first_row).columns
        except READ_ERRORS as error:
            raise DataError(f"{part.path} cannot be read as parquet: {error}") from error
        counts = self._list_of(columns, self.same_time, np.int64)
        assert counts is not None
        return (*counts, columns[begin].values.astype(np.int64))

    def _list_of(
        self, columns: dict[str, Column], name: str | None, kind: Any
    ) -> tuple[Array, Array] | None:
        if name is None:
            return None
        lists = columns[name]
        assert isinstance(lists, ListColumn)
        return lists.values.astype(kind, copy=False), lists.offsets.astype(np.int64)

    def _decode(self, part: UserPart) -> tuple[DecodedRows, dict[str, tuple[str, str]]]:
        try:
            with pq.ParquetFile(part.path, memory_map=True) as file:
                stored = set(file.schema_arrow.names)
                named = {m: pair for m, pair in self.positions.items() if set(pair) <= stored}
                positions = [name for pair in named.values() for name in pair]
                lists = [self.history, *filter(None, (self.times, self.same_time))]
                table = file.read_row_group(part.group, columns=[*self.largest, *positions, *lists])
            return decode(table, str(part.path), part.first_row), named
        except READ_ERRORS as error:
            raise DataError(
                f"{part.path} is damaged in row group {part.group}, which begins with row"
                f" {part.first_row + 1}: {error}"
            ) from error


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
