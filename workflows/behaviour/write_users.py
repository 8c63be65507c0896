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
from ...schemas.users_layout import USERS, UsersLayout
from ..engine.backend import arrow_lists
from ..engine.schedulers import Scheduler
from .behaviour_columns import AS_OF, EARLIER, SECONDS
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
        histories, layout, users = self.histories, self.layout, slice(first, stop)
        columns, interactions = histories.columns, slice(offsets[first], offsets[stop])
        places = offsets[first : stop + 1] - offsets[first]
        lasts = np.maximum(offsets[first + 1 : stop + 1] - 1, 0)
        table: dict[str, pa.Array] = {}
        for name in columns.users:
            if name not in layout.per_interaction:
                table[name] = pa.array(histories.column(name)[users])
        for name in (*columns.of_users, *columns.changing_numbers):
            if name == EARLIER:
                before = histories.numbers(name)[users].astype(np.int64)
                table[str(layout.samples_before)] = pa.array(before)
            elif name not in layout.per_interaction:
                changes = name in columns.changing_numbers
                numbers = histories.numbers(name)[lasts if changes else users]
                table[name] = pa.array(numbers.astype(np.float32))
        for mapping, names in layout.positions.items():
            for name, values in zip(names, histories.positions(mapping), strict=True):
                table[name] = pa.array(values[users])
        lists = {layout.history: histories.items[interactions].astype(self.id_type)}
        if layout.times is not None:
            lists[layout.times] = histories.numbers(SECONDS)[interactions]
        own = np.arange(interactions.start, interactions.stop)
        behind = own
        if layout.same_time is not None:
            behind = histories.firsts[interactions]
            lists[layout.same_time] = (own - behind).astype(np.int32)
        if layout.roles is not None:
            lists[layout.roles] = histories.roles[interactions]
        if layout.changed_at is not None:
            lists[layout.changed_at] = histories.beside(AS_OF)[interactions]
        for number in columns.features.lagging:
            starts = np.repeat(offsets[first:stop], np.diff(places))
            for name, lag in number.lagged.items():
                lagging = np.maximum(behind - lag, interactions.start)
                # 0 where there was none: what operators bring to 0 is in the middle, or the least.
                found = np.where(behind - starts >= lag, histories.numbers(number.name)[lagging], 0)
                lists[name] = found.astype(np.float32)
        for name in layout.per_interaction:
            if name in columns.beside_items:
                lists[name] = histories.beside(name)[interactions]
            elif name not in lists:
                lists[name] = histories.numbers(name)[interactions].astype(np.float32)
        return pa.table(table | {name: arrow_lists(v, places) for name, v in lists.items()})


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
