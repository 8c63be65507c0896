"""Histories become files with one row per user: nothing is cut, drawn or looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.atomic_write import whole_file
from ...foundation.exceptions import MerlinSimError
from ...schemas.users_layout import USERS, UsersLayout
from ..engine.backend import arrow_lists
from ..engine.schedulers import Scheduler
from .behaviour_columns import SECONDS, BehaviourColumns
from .histories import Histories

INTERACTIONS_PER_FILE = 1 << 23
INTERACTIONS_PER_GROUP = 1 << 21
"""What the feed has in memory at a time, and shuffles users within: 8 MB."""
ZSTD_LEVEL = 1  # lower ones store ids that hardly repeat as they are, one byte in four a zero


@dataclass(frozen=True)
class UserPart:
    """The users of one file: ``first`` to ``stop`` of all histories."""

    number: int
    first: int
    stop: int

    @property
    def file(self) -> str:
        """The file, relative to the dataset directory."""
        return f"{USERS}/part.{self.number}.parquet"


@dataclass(frozen=True)
class WriteUsers:
    """Writes one file of users; travels between processes."""

    histories: Histories
    layout: UsersLayout
    directory: Path
    id_type: str
    """What holds an item's id: ``"int32"``, or ``"int64"`` where there are more items."""

    def __call__(self, part: UserPart) -> int:
        """Write the part's file, and return how many users it has."""
        offsets = self.histories.offsets
        groups = cut(offsets[part.first : part.stop + 1], INTERACTIONS_PER_GROUP)
        times = self.layout.times
        split = [] if times is None else [f"{times}.list.element"]
        with whole_file(self.directory / part.file) as whole, pq.ParquetWriter(
            whole, self._table(offsets, 0, 0).schema, compression="zstd",
            compression_level=ZSTD_LEVEL, use_dictionary=False, write_statistics=False,
            use_byte_stream_split=split,  # of times the first bytes are nearly all the same
        ) as writer:  # fmt: skip
            for first, stop in groups:
                table = self._table(offsets, part.first + first, part.first + stop)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
        return part.stop - part.first

    def _table(self, offsets: npt.NDArray[np.int64], first: int, stop: int) -> pa.Table:
        histories, users = self.histories, slice(first, stop)
        items = histories.items[offsets[first] : offsets[stop]].astype(self.id_type)
        places = offsets[first : stop + 1] - offsets[first]
        columns = {name: histories.column(name)[users] for name in histories.columns.users}
        for mapping, names in self.layout.positions.items():
            for name, values in zip(names, histories.positions(mapping), strict=True):
                columns[name] = values[users]
        table = {name: pa.array(values) for name, values in columns.items()}
        table[self.layout.history] = arrow_lists(items, places)
        if self.layout.times is not None:
            times = histories.numbers(SECONDS)[offsets[first] : offsets[stop]]
            table[self.layout.times] = arrow_lists(times, places)
        if self.layout.same_time is not None:
            own = np.arange(offsets[first], offsets[stop])
            before = own - histories.firsts[offsets[first] : offsets[stop]]
            table[self.layout.same_time] = arrow_lists(before.astype(np.int32), places)
        return pa.table(table)


def cut(offsets: npt.NDArray[np.int64], interactions: int) -> list[tuple[int, int]]:
    """Cut users into stretches of about so many interactions; one user is never cut.

    >>> cut(np.array([0, 3, 5, 15, 16]), 5)
    [(0, 2), (2, 3), (3, 4)]
    """
    stretches, first = [], 0
    while first < len(offsets) - 1:
        limit = offsets[first] + interactions
        stop = max(first + 1, int(np.searchsorted(offsets, limit, side="right")) - 1)
        stretches.append((first, stop))
        first = stop
    return stretches


def write_users(
    histories: Histories,
    layout: UsersLayout,
    items: int,
    directory: Path,
    scheduler: Scheduler,
) -> Iterator[int]:
    """Write all users; yields how many each file has.

    Args:
        histories: With the positions of train and test.
        layout: The names of the columns.
        items: The largest id of an item.
        directory: The dataset directory.
        scheduler: Where to work.
    """
    (directory / USERS).mkdir()
    id_type = "int32" if items < 2**31 else "int64"
    write = WriteUsers(histories, layout, directory, id_type)
    yield from scheduler.run(write, user_parts(histories))


def user_parts(histories: Histories) -> list[UserPart]:
    """The files that all users go to."""
    stretches = cut(histories.offsets, INTERACTIONS_PER_FILE)
    return [UserPart(number, *stretch) for number, stretch in enumerate(stretches)]


def refuse_names_of_positions(columns: BehaviourColumns, layout: UsersLayout) -> None:
    """Refuse columns of a log that are called like those of the positions.

    Raises:
        MerlinSimError: With the names.
    """
    own = {name for names in layout.positions.values() for name in names}
    own |= set() if layout.same_time is None else {layout.same_time}
    times = [] if layout.times is None else [layout.times]
    taken = sorted(own & {*columns.users, *columns.items, *times})
    if taken:
        raise MerlinSimError(
            "With `--layout users`, columns of the log should not be called as the positions of "
            f"samples are ({', '.join(sorted(own))}). Received: {', '.join(taken)}."
        )
