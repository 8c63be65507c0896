"""Models whose tables are spread over ranks: within a ``with`` they are built by a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ....foundation.exceptions import MerlinSimError
from ....foundation.ranks import Ranks
from ....placement.plan import Plan
from ....placement.table import Shard
from .initial_table import InitialTable

HOST = "CPU:0"
"""TensorFlow's device of a machine's own memory."""


@dataclass(frozen=True)
class Spread:
    """A plan, and which of its ranks this one is."""

    plan: Plan
    ranks: Ranks
    compiles: bool = False
    """Whether XLA is to compile what follows the lookups; it cannot compile what ranks exchange."""

    def device_of(self, table: str) -> Any:
        """Enter with ``with``, where this rank's part of a table is made: host memory, or as ever.

        What is computed with it follows its variables.
        """
        is_on_host = self.ranks.rank in self.plan.by_name[table].on_host
        return tf.device(HOST) if is_on_host else nullcontext()


_spread: ContextVar[Spread | None] = ContextVar("spread", default=None)


@contextmanager
def spread_tables(plan: Plan, ranks: Ranks, compiles: bool = False) -> Iterator[None]:
    """Build the models in this block by a plan: each rank has its part of their tables.

    All ranks call such a model together: ids travel to the ranks that have their vectors, and
    gradients follow. Its tables begin with the same values whatever the plan.

    Args:
        plan: names every table of the model.
        ranks: this run.
        compiles: whether XLA is to compile what follows the lookups.
    """
    token = _spread.set(Spread(plan, ranks, compiles))
    try:
        yield
    finally:
        _spread.reset(token)


def current_spread() -> Spread | None:
    """Return the plan by which models are built here; None for none."""
    return _spread.get()


@dataclass(frozen=True)
class TablePart:
    """What a variable of this rank is a part of."""

    shard: Shard
    rows: int
    """Of the whole table."""
    width: int
    """Of the whole table."""

    def whole_shape(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the shape of the whole of which a variable of ``shape`` is the part.

        What an optimizer keeps may have a single column for all of the table's.
        """
        return (self.rows, self.width if shape[1] == self.shard.columns else int(shape[1]))

    def places(self, shape: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the rows and the columns of the whole that a variable of ``shape`` has."""
        first, rows = self.shard.first_row, self.shard.rows
        column = self.shard.first_column if shape[1] == self.shard.columns else 0
        return (first, first + rows), (column, column + int(shape[1]))


class PartOfTable(tf.keras.layers.Embedding):
    """Keras's layer of a table, with the rows and columns that one rank has, none perhaps.

    Args:
        part: which those are.
        start: what draws their first values.
        name: of the table.
    """

    def __init__(self, part: TablePart, start: InitialTable, name: str) -> None:
        """Take the sizes of the part."""
        rows, columns = part.shard.rows, part.shard.columns
        super().__init__(max(1, rows), columns, embeddings_initializer=start, name=name)
        self.input_dim = rows  # Keras refuses 0 where it is given
        self.part = part

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, which know what they are part of."""
        super().build(input_shape)
        self.embeddings.table_part = self.part


def table_parts(model: tf.Module) -> dict[Any, TablePart]:
    """Return the parts of tables that a model has on this rank, none where it has whole ones.

    The keys are ``variable.ref()``.
    """
    parts = {v.ref(): getattr(v, "table_part", None) for v in model.variables}
    return {variable: part for variable, part in parts.items() if part is not None}


def own_variables(model: tf.Module) -> list[tf.Variable]:
    """Return the trained variables of which this rank has a part that no other has."""
    parts = table_parts(model)
    return [variable for variable in model.trainable_variables if variable.ref() in parts]


def check_whole(model: tf.Module, method: str) -> None:
    """Refuse what knows of no other ranks' parts, where a model has only parts of its tables.

    Raises:
        MerlinSimError: naming the method.
    """
    if table_parts(model):
        raise MerlinSimError(
            f"`{method}` should be called on a model with whole tables. Received: one whose tables "
            "are spread over ranks; `merlin-sim train --tables spread` trains it, and its "
            "checkpoints are read into whole models."
        )


def placed_table(spread: Spread, name: str, rows: int, width: int) -> tf.keras.layers.Layer:
    """Make Keras's layer of a table with the rows and columns that this rank has, none perhaps.

    Raises:
        MerlinSimError: where the plan has no such table.
    """
    placed = spread.plan.by_name.get(name)
    if placed is None or (placed.table.rows, placed.table.width) != (rows, width):
        found = placed and [placed.table.rows, placed.table.width]
        raise MerlinSimError(
            f"the plan should have the table {name} of {[rows, width]}. Received: {found}"
        )
    shard = placed.of_rank(spread.ranks.rank)
    start = InitialTable(rows**-0.5, shard, rows, width)
    if placed.shards:
        return PartOfTable(TablePart(shard, rows, width), start, name)
    return tf.keras.layers.Embedding(rows, width, embeddings_initializer=start, name=name)
