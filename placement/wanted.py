"""What a plan of tables is made for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .plan import Cut

FOR_TABLES = 0.9
"""Share of a rank's memory that is planned with; the rest is for batches and the other weights."""
CUTS = ("auto", *(cut.value for cut in Cut))
"""What can be asked for: the planner's choice, or one form for every table."""


@dataclass(frozen=True)
class Wanted:
    """What a plan is for."""

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
