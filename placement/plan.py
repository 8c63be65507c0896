"""A plan: for each table, whether every rank has it, or which rank has which part of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from .table import Shard, Table


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
class Placed:
    """A table and its places."""

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
    """Where all tables are."""

    ranks: int
    tables: tuple[Placed, ...]

    @cached_property
    def by_name(self) -> dict[str, Placed]:
        """Table -> its places."""
        return {placed.table.name: placed for placed in self.tables}

    @property
    def spread(self) -> tuple[Placed, ...]:
        """The tables that not every rank has."""
        return tuple(placed for placed in self.tables if placed.shards)
