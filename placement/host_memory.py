"""Moves to host memory what a rank's device has no room for."""

from __future__ import annotations

from dataclasses import replace

from .costs import part_costs, rank_bytes
from .plan import Cut, Placed, Plan
from .traffic import bytes_to_host
from .wanted import Wanted


def move_to_host(plan: Plan, wanted: Wanted) -> Plan:
    """Move tables until every device has room for the others, or host memory is full.

    Those go first that free most of the device for each byte that then travels between the two in
    a step; what still has room at the end comes back. A table that is on every rank moves on every
    rank, as ranks exchange its gradient.
    """
    if not wanted.host_memory:
        return plan
    moved: dict[str, set[int]] = {placed.table.name: set() for placed in plan.tables}
    for rank in range(plan.ranks):
        for placed in _crowded_out(plan, rank, wanted):
            everywhere = placed.cut is Cut.REPLICATED
            moved[placed.table.name] |= set(range(plan.ranks)) if everywhere else {rank}
    tables = (replace(p, on_host=frozenset(moved[p.table.name])) for p in plan.tables)
    return replace(plan, tables=tuple(tables))


def _crowded_out(plan: Plan, rank: int, wanted: Wanted) -> list[Placed]:
    """Return the tables of which a rank's part moves."""

    def held(placed: Placed) -> int:
        return part_costs(placed, rank, wanted).held

    def worth(placed: Placed) -> float:
        return held(placed) / bytes_to_host(placed, rank, wanted.samples)

    over = rank_bytes(plan, rank, wanted) - wanted.for_tables
    room = wanted.for_host_tables
    moved: list[Placed] = []
    own = [placed for placed in plan.tables if placed.of_rank(rank).rows]
    for placed in sorted(own, key=lambda placed: (-worth(placed), placed.table.name)):
        if over > 0 and held(placed) <= room:
            moved.append(placed)
            over -= held(placed)
            room -= held(placed)
    for placed in reversed(moved.copy()):
        if over + held(placed) <= 0:
            moved.remove(placed)
            over += held(placed)
    return moved
