"""Makes a plan: small tables everywhere, others where least is, cut if they must be.

A table whose rows are no more than a rank's samples is replicated: the gradient of all of it is no
larger than the vectors that would travel. Of the others the largest are placed first, each to the
ranks with the least to hold and to send. One that is larger than an even share is cut by columns,
in halves down to ``NARROWEST``, so that every rank has a part of every lookup; where that is not
enough, or the optimizer needs whole rows, by rows.

Where a device has no room for its part, and host memory may be used, tables move there: those that
free the most of the device for each number that then travels between the two in a step.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError
from .plan import (
    FLOAT,
    FOR_TABLES,
    ID,
    ROW_SLOTS,
    Cut,
    Plan,
    PlanOptions,
    Shard,
    Table,
    TableShards,
    gradient_bytes,
    shown_size,
    slot_bytes,
)


class Costs(NamedTuple):
    """The bytes of one rank's part of a table."""

    weights: int
    slots: int
    gradient: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def rank_bytes(plan: Plan, rank: int, options: PlanOptions, on_host: bool = False) -> int:
    """Return what a rank holds on its device, or in host memory.

    That is weights, what the optimizer keeps of them, and gradients.
    """
    tables = (p for p in plan.tables if (rank in p.on_host) == on_host)
    return sum(part_costs(placed, rank, options).total for placed in tables)


def part_costs(placed: TableShards, rank: int, options: PlanOptions) -> Costs:
    """Return the bytes of a rank's part of one table."""
    shard = placed.of_rank(rank)
    gradient = gradient_bytes(shard, options.optimizer, options.samples * placed.table.lookups)
    return Costs(shard.weights, slot_bytes(shard, options.optimizer), gradient)


Bytes = npt.NDArray[np.float64]


def bytes_between(plan: Plan, samples: int) -> Bytes:
    """Return what each rank sends to each other in a step, [from, to], at most.

    A step has so many samples over all ranks. A batch's distinct ids travel: as many as it has
    where all differ, or as the table has rows. A table cut by rows is taken to be asked evenly:
    where ids fall by count, as NVTabular's do, the rank of the first rows is asked most.
    """
    sent = np.zeros((plan.ranks, plan.ranks))
    own = -(-samples // plan.ranks)
    for placed in plan.tables:
        _add(sent, placed, own)
    return sent


def _add(sent: Bytes, placed: TableShards, own: int) -> None:
    table, ranks = placed.table, len(sent)
    distinct = min(own * table.lookups, table.rows)
    others = 1 - np.eye(ranks)
    if placed.cut is Cut.REPLICATED:  # the rows of a batch go to every other rank
        sent += others * distinct * (table.width * FLOAT + ID)
        return
    for shard in placed.shards:
        share = shard.rows / table.rows if placed.cut is Cut.ROWS else 1.0
        vectors = distinct * share * shard.columns * FLOAT
        sent[:, shard.rank] += others[:, shard.rank] * (distinct * share * ID + vectors)
        sent[shard.rank, :] += others[shard.rank, :] * vectors


def bytes_to_host(placed: TableShards, rank: int, samples: int) -> float:
    """Return what travels in a step between a device and a rank's part that is in host memory.

    Ids and gradients there, vectors back; counted as :func:`bytes_between` does.
    """
    shard, table = placed.of_rank(rank), placed.table
    distinct = min(samples * table.lookups, table.rows) * shard.rows / table.rows
    return distinct * (ID + 2 * shard.columns * FLOAT)


def move_to_host(plan: Plan, options: PlanOptions) -> Plan:
    """Move tables until every device has room for the others, or host memory is full.

    Those go first that free most of the device for each byte that then travels between the two in
    a step; what still has room at the end comes back. A table that is on every rank moves on every
    rank, as ranks exchange its gradient.
    """
    if not options.host_memory:
        return plan
    moved: dict[str, set[int]] = {placed.table.name: set() for placed in plan.tables}
    for rank in range(plan.ranks):
        for placed in _crowded_out(plan, rank, options):
            everywhere = placed.cut is Cut.REPLICATED
            moved[placed.table.name] |= set(range(plan.ranks)) if everywhere else {rank}
    tables = (replace(p, on_host=frozenset(moved[p.table.name])) for p in plan.tables)
    return replace(plan, tables=tuple(tables))


def _crowded_out(plan: Plan, rank: int, options: PlanOptions) -> list[TableShards]:
    """Return the tables of which a rank's part moves."""

    def size(placed: TableShards) -> int:
        return part_costs(placed, rank, options).total

    def worth(placed: TableShards) -> float:
        return size(placed) / bytes_to_host(placed, rank, options.samples)

    over = rank_bytes(plan, rank, options) - options.for_tables
    room = options.for_host_tables
    moved: list[TableShards] = []
    own = [placed for placed in plan.tables if placed.of_rank(rank).rows]
    for placed in sorted(own, key=lambda placed: (-worth(placed), placed.table.name)):
        if over > 0 and size(placed) <= room:
            moved.append(placed)
            over -= size(placed)
            room -= size(placed)
    for placed in reversed(moved.copy()):
        if over + size(placed) <= 0:
            moved.remove(placed)
            over += size(placed)
    return moved


NARROWEST = 16
"""Fewest columns into which tables are cut unless asked for."""
PIECES = (1, 2, 4, 8, 16)
"""Into how many pieces an even share is cut: the first that balances."""
EVEN = 1.1
"""So many times the mean may be what the fullest rank holds, for cuts to be no finer."""
MOST_RANKS = 16
"""So many times more ranks are looked at to say how many would do."""


class DoesNotFit(MerlinSimError):
    """There is no plan for so little memory."""


def make_plan(tables: list[Table], options: PlanOptions) -> Plan:
    """Assign every table to ranks."""
    if options.cut == Cut.COLUMNS.value and options.optimizer in ROW_SLOTS:
        raise MerlinSimError(
            f"tables cannot be cut by columns under {options.optimizer}, which keeps one number of "
            "a whole row: cut them by rows."
        )
    plans = [_assign(tables, options, pieces_of) for pieces_of in PIECES]
    fitting = [plan for plan in plans if _most(plan, options) <= options.for_tables]
    if fitting:
        even = (plan for plan in fitting if _most(plan, options) <= EVEN * _mean(plan, options))
        return next(even, min(fitting, key=lambda plan: _most(plan, options)))
    needed, changes = shown_size(least_memory(tables, options)), what_would_fit(tables, options)
    host_part = (
        f", and {shown_size(options.for_host_tables)} beside it" if options.host_memory else ""
    )
    raise DoesNotFit(
        f"the tables do not fit {options.ranks} rank(s): one would have to hold {needed} on its "
        f"device, with gradients and what {options.optimizer} keeps, and has "
        f"{shown_size(options.for_tables)} for them there{host_part}. "
        f"What would: {', or '.join(changes)}."
    )


def least_memory(tables: list[Table], options: PlanOptions) -> int:
    """Return the least that the fullest rank has to hold on its device."""
    return min(_most(_assign(tables, options, pieces_of), options) for pieces_of in PIECES)


def what_would_fit(tables: list[Table], options: PlanOptions) -> list[str]:
    """Say which changes of one thing would make tables fit that do not."""
    found = [f"{shown_size(least_memory(tables, options) / FOR_TABLES)} a rank"]
    for ranks in range(options.ranks + 1, MOST_RANKS * options.ranks + 1):
        if _fits(tables, replace(options, ranks=ranks)):
            found.append(f"{ranks} ranks")
            break
    host = least_host_memory(tables, options)
    if host is not None:
        found.append(f"--host_memory of {shown_size(host / FOR_TABLES)} a rank")
    lean = ("sgd",) if options.cut == Cut.COLUMNS.value else ("adagrad", "sgd")
    for optimizer in lean:
        other = replace(options, optimizer=optimizer)
        if other != options and _fits(tables, other):
            found.append(f"--optimizer {optimizer}")
            break
    if options.cut != "auto" and _fits(tables, replace(options, cut="auto")):
        found.append("--cut auto")
    return found


def least_host_memory(tables: list[Table], options: PlanOptions) -> int | None:
    """Return what the fullest rank has to hold in host memory; None where that would not help."""
    boundless = replace(options, host_memory=math.inf)
    plans = [_assign(tables, boundless, pieces_of) for pieces_of in PIECES]
    fitting = [plan for plan in plans if _most(plan, boundless) <= options.for_tables]
    largest = [
        max(rank_bytes(plan, rank, options, on_host=True) for rank in range(plan.ranks))
        for plan in fitting
    ]
    return min(largest, default=None)


def _fits(tables: list[Table], options: PlanOptions) -> bool:
    """Return whether there is a plan of these tables for so little memory."""
    return least_memory(tables, options) <= options.for_tables


def _most(plan: Plan, options: PlanOptions) -> int:
    return max(rank_bytes(plan, rank, options) for rank in range(plan.ranks))


def _mean(plan: Plan, options: PlanOptions) -> float:
    return sum(rank_bytes(plan, rank, options) for rank in range(plan.ranks)) / plan.ranks


def _assign(tables: list[Table], options: PlanOptions, pieces_of: int) -> Plan:
    """Assign tables to ranks in pieces of at most an even share over ``pieces_of``."""
    everywhere = {table.name for table in tables if _is_replicated(table, options)}
    moved = [table for table in tables if table.name not in everywhere]
    weights = sum(table.weights for table in moved) or 1
    numbers = sum(_numbers(table, options) for table in moved) or 1
    share = weights / options.ranks / pieces_of
    load = [0.0] * options.ranks
    shards: dict[str, tuple[Shard, ...]] = {}
    for table in sorted(moved, key=lambda table: (-table.weights, table.name)):
        cut, pieces = _divide(table, options, share)
        ranks = sorted(sorted(range(options.ranks), key=lambda rank: (load[rank], rank))[:pieces])
        shards[table.name] = _shards(table, cut, ranks)
        for shard in shards[table.name]:
            part = shard.weights / table.weights
            load[shard.rank] += shard.weights / weights + part * _numbers(table, options) / numbers
    placed = tuple(TableShards(table, shards.get(table.name, ())) for table in tables)
    return move_to_host(Plan(options.ranks, placed), options)


def _numbers(table: Table, options: PlanOptions) -> int:
    """Return how many numbers a step looks up in a table, at most."""
    return min(options.samples * table.lookups, table.rows) * table.width


def _is_replicated(table: Table, options: PlanOptions) -> bool:
    if options.cut != "auto":
        return options.cut == Cut.REPLICATED.value
    return options.ranks == 1 or table.rows * options.ranks <= options.samples


def _divide(table: Table, options: PlanOptions, share: float) -> tuple[Cut, int]:
    """Say how a table is cut, and into how many pieces."""
    most_columns = min(options.ranks, table.width)
    if options.cut == Cut.WHOLE.value:
        return Cut.WHOLE, 1
    if options.cut == Cut.COLUMNS.value:
        return Cut.COLUMNS, most_columns
    if options.cut == Cut.ROWS.value:
        return Cut.ROWS, min(options.ranks, table.rows)
    pieces = 1
    while table.weights > pieces * share and pieces < options.ranks:
        pieces *= 2
    pieces = min(pieces, options.ranks)
    if pieces == 1:
        return Cut.WHOLE, 1
    if options.optimizer in ROW_SLOTS or table.width < pieces * NARROWEST:
        return Cut.ROWS, min(pieces, table.rows)
    return Cut.COLUMNS, pieces


def _shards(table: Table, cut: Cut, ranks: list[int]) -> tuple[Shard, ...]:
    """Cut a table evenly for these ranks."""
    size = table.rows if cut is Cut.ROWS else table.width
    ends = [size * number // len(ranks) for number in range(len(ranks) + 1)]
    shards = []
    for rank, begin, end in zip(ranks, ends, ends[1:]):  # noqa: B905  one end more than ranks
        if cut is Cut.ROWS:
            shards.append(Shard(table.name, rank, begin, end - begin, 0, table.width))
        else:
            shards.append(Shard(table.name, rank, 0, table.rows, begin, end - begin))
    return tuple(shards)
