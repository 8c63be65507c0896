"""An embedding table, as far as its place is concerned."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Return what an optimizer keeps beside the weights.

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
