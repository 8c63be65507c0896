"""The memory that a plan takes on each rank."""

from __future__ import annotations

from typing import NamedTuple

from .plan import Placed, Plan
from .table import gradient_bytes, slot_bytes
from .wanted import Wanted


class Costs(NamedTuple):
    """The bytes of one rank's part of a table."""

    weights: int
    slots: int
    """What the optimizer keeps."""
    gradient: int

    @property
    def held(self) -> int:
        """All of them."""
        return sum(self)


def rank_bytes(plan: Plan, rank: int, wanted: Wanted, on_host: bool = False) -> int:
    """Return what a rank holds: weights, what the optimizer keeps of them, gradients.

    Args:
        plan: where the tables are.
        rank: whose.
        wanted: what the plan is for.
        on_host: in host memory, or else on its device.
    """
    held = (p for p in plan.tables if (rank in p.on_host) == on_host)
    return sum(part_costs(placed, rank, wanted).held for placed in held)


def rank_costs(plan: Plan, rank: int, wanted: Wanted) -> list[Costs]:
    """Return the bytes of a rank's part of every table."""
    return [part_costs(placed, rank, wanted) for placed in plan.tables]


def part_costs(placed: Placed, rank: int, wanted: Wanted) -> Costs:
    """Return the bytes of a rank's part of one table."""
    shard = placed.of_rank(rank)
    gradient = gradient_bytes(shard, wanted.optimizer, wanted.samples * placed.table.lookups)
    return Costs(shard.weights, slot_bytes(shard, wanted.optimizer), gradient)
