"""Plans of embedding tables: what a run asks of one, and what it says of each rank."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ...foundation.exceptions import MerlinSimError

UNITS = {"B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    UNITS[f"{_letter}B"] = 1000**_power
    UNITS[f"{_letter}IB"] = 1024**_power


def parse_size(text: str) -> int:
    """Read a size.

    >>> parse_size("80GB"), parse_size("1.5 GiB")
    (80000000000, 1610612736)
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get((found[2] or "B").upper()) if found else None
    if found is None or unit is None or not float(found[1]):
        raise MerlinSimError(f"a size should be written like 80GB or 64GiB. Received: {text!r}")
    return int(float(found[1]) * unit)


def shown_size(size: float) -> str:
    """Write bytes.

    >>> shown_size(3 * 2**29), shown_size(5 * 2**20), shown_size(5000), shown_size(0)
    ('1.50 GiB', '5.00 MiB', '4.88 KiB', '0')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size / 2**10:,.2f} KiB" if size else "0"


FLOAT = 4
"""Bytes of a number: tables are float32."""
ID = 4
"""Bytes of an id, as the feed gives it."""


@dataclass(frozen=True)
class Table:
    """A table of vectors."""

    name: str
    rows: int
    width: int
    lookups: int = 1
    """Ids that a sample looks up in it."""

    @property
    def weights(self) -> int:
        """Bytes of the vectors."""
        return self.rows * self.width * FLOAT


@dataclass(frozen=True)
class Shard:
    """The rows and columns of a table that one rank has.

    >>> shard = Shard("item", rank=1, first_row=0, rows=10, first_column=8, columns=8)
    >>> shard.weights
    320
    """

    table: str
    rank: int
    first_row: int
    rows: int
    first_column: int
    columns: int

    @property
    def weights(self) -> int:
        """Bytes of its vectors."""
        return self.rows * self.columns * FLOAT


SLOTS = {"sgd": 0, "adam": 2, "lazy_adam": 2, "adagrad": 0}
"""Optimizer -> floats that it keeps for each weight."""
ROW_SLOTS = {"adagrad": 1}
"""Optimizer -> floats that it keeps for each row, of all columns together."""


def slot_bytes(shard: Shard, optimizer: str) -> int:
    """Return what an optimizer keeps besides the weights.

    >>> slot_bytes(Shard("item", 0, 0, 10, 0, 8), "adam")
    640
    >>> slot_bytes(Shard("item", 0, 0, 10, 0, 8), "adagrad")
    40
    """
    of_rows = ROW_SLOTS.get(optimizer, 0) * shard.rows * FLOAT
    return SLOTS[optimizer] * shard.weights + of_rows


def gradient_bytes(shard: Shard, optimizer: str, ids: int) -> int:
    """Return what a shard's gradient takes: a row for each distinct id of a step.

    Adam moves every row in every step, so that its gradient becomes as large as the shard.

    >>> gradient_bytes(Shard("item", 0, 0, 10, 0, 8), "sgd", ids=3)
    108
    """
    if optimizer == "adam":
        return shard.weights
    return min(shard.rows, ids) * (shard.columns * FLOAT + ID)


class Cut(Enum):
    """How a table is divided."""

    REPLICATED = "replicated"
    """Not at all; every rank has it."""
    WHOLE = "whole"
    """Not at all; one rank has it."""
    COLUMNS = "columns"
    """Ranks have some columns of every row."""
    ROWS = "rows"
    """Ranks have some rows, whole."""


@dataclass(frozen=True)
class TableShards:
    """A table and its shards."""

    table: Table
    shards: tuple[Shard, ...] = ()
    """In the order of their first row and column; none where every rank has the table."""
    on_host: frozenset[int] = frozenset()
    """The ranks that keep their part in their machine's memory, not on their device."""

    @property
    def cut(self) -> Cut:
        """How it is divided."""
        if not self.shards:
            return Cut.REPLICATED
        if len(self.shards) == 1:
            return Cut.WHOLE
        return Cut.COLUMNS if self.shards[0].columns < self.table.width else Cut.ROWS

    def of_rank(self, rank: int) -> Shard:
        """Return what a rank has of it: a shard without rows where that is nothing."""
        if not self.shards:
            return Shard(self.table.name, rank, 0, self.table.rows, 0, self.table.width)
        own = [shard for shard in self.shards if shard.rank == rank]
        return own[0] if own else Shard(self.table.name, rank, 0, 0, 0, self.table.width)


@dataclass(frozen=True)
class Plan:
    """Placement of all tables."""

    ranks: int
    tables: tuple[TableShards, ...]

    @cached_property
    def by_name(self) -> dict[str, TableShards]:
        """Table -> its shards."""
        return {placed.table.name: placed for placed in self.tables}

    @property
    def sharded(self) -> tuple[TableShards, ...]:
        """The tables that not every rank has."""
        return tuple(placed for placed in self.tables if placed.shards)


FOR_TABLES = 0.9
"""Share of a rank's memory that is planned with; the rest is for batches and the other weights."""
CUTS = ("auto", *(cut.value for cut in Cut))
"""What can be asked for: the planner's choice, or one form for every table."""


@dataclass(frozen=True)
class PlanOptions:
    """The run that a plan is for."""

    ranks: int
    samples: int
    """Of a step, over all ranks."""
    optimizer: str = "adam"
    memory: float | None = None
    """Bytes that a rank's device has in all; None for any."""
    cut: str = "auto"
    """One of ``CUTS``."""
    host_memory: float = 0
    """Bytes that a rank has in its machine's memory, for what its device has no room for."""

    @property
    def for_tables(self) -> float:
        """Bytes that a rank's device has for tables, their gradients and the optimizer."""
        return math.inf if self.memory is None else FOR_TABLES * self.memory

    @property
    def for_host_tables(self) -> float:
        """Bytes that a rank has for the same in host memory."""
        return FOR_TABLES * self.host_memory
