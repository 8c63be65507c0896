"""Tables that are spread over ranks: which part of one a rank has, and how ids are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ....foundation.exceptions import MerlinSimError
from ....foundation.ranks import Ranks
from ....parallel.placement.plan import Cut, Plan, Shard, TableShards
from ....parallel.ranks.collectives import exchange, exchange_counts
from ....parallel.steps.table_rows import rows_named
from .table_lookup import shared_rows, table_lookup

BLOCK_ROWS = 65_536
"""Rows that are drawn at once."""


class InitialTable(tf.keras.initializers.Initializer):
    """Uniform in +-``limit``, drawn block by block from one seed.

    However a table of ``rows`` and ``width`` is cut, its parts together begin as the whole table
    would: that is why a part draws whole rows and keeps its columns.
    """

    def __init__(self, limit: float, shard: Shard, rows: int, width: int) -> None:
        """Take the seed from TensorFlow's, as every rank does in the same order."""
        self.limit, self.shard, self.rows, self.width = limit, shard, rows, width
        with tf.init_scope():
            self.seed = tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32).numpy()

    def __call__(self, shape: Any, dtype: Any = None, **keras: Any) -> tf.Tensor:
        """Draw the part."""
        shard = self.shard
        kept = slice(shard.first_column, shard.first_column + shard.columns)
        values = np.empty((shard.rows, shard.columns), np.float32)
        first, last = shard.first_row, shard.first_row + shard.rows
        for block in range(first // BLOCK_ROWS, -(-last // BLOCK_ROWS)):
            begin = max(first, block * BLOCK_ROWS)
            end = min(last, (block + 1) * BLOCK_ROWS)
            own = slice(begin - block * BLOCK_ROWS, end - block * BLOCK_ROWS)
            values[begin - first : end - first] = self._draw(block)[own, kept]
        return tf.cast(values, dtype or tf.float32)

    def _draw(self, block: int) -> Any:
        rows = min(BLOCK_ROWS, self.rows - block * BLOCK_ROWS)
        seed = [int(self.seed[0]), int(self.seed[1]) + block]
        return tf.random.stateless_uniform(
            [rows, self.width], seed, minval=-self.limit, maxval=self.limit
        ).numpy()


HOST = "CPU:0"
"""TensorFlow's device of a machine's own memory."""


@dataclass(frozen=True)
class Sharding:
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


_sharding: ContextVar[Sharding | None] = ContextVar("sharding", default=None)


@contextmanager
def sharded_tables(plan: Plan, ranks: Ranks, compiles: bool = False) -> Iterator[None]:
    """Build the models in this block by a plan: each rank has its part of their tables.

    All ranks call such a model together: ids travel to the ranks that have their vectors, and
    gradients follow. Its tables begin with the same values whatever the plan.

    Args:
        plan: names every table of the model.
        ranks: this run.
        compiles: whether XLA is to compile what follows the lookups.
    """
    token = _sharding.set(Sharding(plan, ranks, compiles))
    try:
        yield
    finally:
        _sharding.reset(token)


def current_sharding() -> Sharding | None:
    """Return the plan by which models are built here; None for none."""
    return _sharding.get()


@dataclass(frozen=True)
class TablePart:
    """The part of a table that a variable of this rank holds."""

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

    def ranges(self, shape: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the rows and the columns of the whole that a variable of ``shape`` has."""
        first, rows = self.shard.first_row, self.shard.rows
        column = self.shard.first_column if shape[1] == self.shard.columns else 0
        return (first, first + rows), (column, column + int(shape[1]))


class PartOfTable(tf.keras.layers.Embedding):
    """Keras's layer of a table, with the rows and columns that one rank has, none perhaps."""

    def __init__(self, part: TablePart, start: InitialTable, name: str) -> None:
        rows, columns = part.shard.rows, part.shard.columns
        super().__init__(max(1, rows), columns, embeddings_initializer=start, name=name)
        self.input_dim = rows  # Keras refuses 0 where it is given
        self.part = part

    def build(self, input_shape: Any = None) -> None:
        """Create the weights, which know what they are part of."""
        super().build(input_shape)
        self.embeddings.table_part = self.part


def table_parts(model: tf.Module) -> dict[Any, TablePart]:
    """Return the parts of tables that a model has on this rank, by ``variable.ref()``."""
    parts = {v.ref(): getattr(v, "table_part", None) for v in model.variables}
    return {variable: part for variable, part in parts.items() if part is not None}


def own_variables(model: tf.Module) -> list[tf.Variable]:
    """Return the trained variables of which this rank has a part that no other has."""
    parts = table_parts(model)
    return [variable for variable in model.trainable_variables if variable.ref() in parts]


def check_whole(model: tf.Module, method: str) -> None:
    """Refuse what knows of no other ranks' parts, where a model has only parts of its tables."""
    if table_parts(model):
        raise MerlinSimError(
            f"`{method}` should be called on a model with whole tables. Received: one whose tables "
            "are spread over ranks; `merlin-sim train --tables spread` trains it, and its "
            "checkpoints are read into whole models."
        )


def placed_table(sharding: Sharding, name: str, rows: int, width: int) -> tf.keras.layers.Layer:
    """Make Keras's layer of a table with the rows and columns that this rank has, none perhaps."""
    placed = sharding.plan.by_name.get(name)
    if placed is None or (placed.table.rows, placed.table.width) != (rows, width):
        found = placed and [placed.table.rows, placed.table.width]
        raise MerlinSimError(
            f"the plan should have the table {name} of {[rows, width]}. Received: {found}"
        )
    shard = placed.of_rank(sharding.ranks.rank)
    start = InitialTable(rows**-0.5, shard, rows, width)
    if placed.shards:
        return PartOfTable(TablePart(shard, rows, width), start, name)
    return tf.keras.layers.Embedding(rows, width, embeddings_initializer=start, name=name)


class Asked(NamedTuple):
    """Rows of one table that a batch asks for, by rank."""

    ids: list[tf.Tensor]
    """Rank -> the ids that it is asked for, counted from its first row."""
    indices: list[tf.Tensor]
    """Rank -> their indices among the distinct ids."""


class ShardedLookup:
    """Looks ids up in spread tables; all ranks call it together.

    Tables, in their order, and the exchanges' name are the same on every rank.
    """

    def __init__(self, tables: Sequence[TableShards], ranks: Ranks, name: str) -> None:
        self.tables = list(tables)
        self.ranks = ranks
        self.name = name

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        weights: Mapping[str, tf.Variable],
        ids: Mapping[str, list[tf.Tensor]],
        with_gradient: bool,
    ) -> dict[str, list[tf.Tensor]]:
        """Look up several tensors of ids in each table: table -> the vectors of each tensor."""
        tables = [placed for placed in self.tables if ids.get(placed.table.name)]
        if not tables:
            return {}
        name = tf.compat.v1.get_default_graph().unique_name(self.name, mark_as_used=True)
        shared = {p.table.name: shared_rows(ids[p.table.name]) for p in tables}
        asked = [self._ask(placed, shared[placed.table.name].rows) for placed in tables]
        vectors = self._fetch(name, tables, weights, asked, with_gradient)
        looked_up = {}
        for placed, found in zip(tables, vectors, strict=True):
            of_table = shared[placed.table.name]
            lacking = tf.size(of_table.rows) - tf.shape(found)[0]  # a filler's, which names none
            filled = tf.pad(found, [[0, lacking], [0, 0]])
            looked_up[placed.table.name] = of_table.per_id(filled, with_gradient)
        return looked_up

    def _ask(self, placed: TableShards, rows: tf.Tensor) -> Asked:
        """Say which ranks are asked for which of the distinct ids."""
        everything = tf.range(rows_named(rows))
        asked = Asked([], [])
        for rank in range(self.ranks.size):
            shard = placed.of_rank(rank)
            if not shard.rows:
                indices = everything[:0]
            elif placed.cut is Cut.ROWS:
                end = shard.first_row + shard.rows
                named = tf.gather(rows, everything)
                own = tf.logical_and(named >= shard.first_row, named < end)
                indices = tf.cast(tf.where(own)[:, 0], tf.int32)
            else:
                indices = everything
            asked.ids.append(tf.gather(rows, indices) - tf.cast(shard.first_row, rows.dtype))
            asked.indices.append(indices)
        return asked

    def _fetch(
        self,
        name: str,
        tables: list[TableShards],
        weights: Mapping[str, tf.Variable],
        asked: list[Asked],
        with_gradient: bool,
    ) -> list[tf.Tensor]:
        """Return the vectors of the distinct ids of each table."""
        size = self.ranks.size
        kind = tf.int64 if any(a.ids[0].dtype == tf.int64 for a in asked) else tf.int32
        ids_of_ranks = [[tf.cast(one.ids[rank], kind) for one in asked] for rank in range(size)]
        sent = tf.stack([[tf.size(part) for part in parts] for parts in ids_of_ranks])
        received = exchange_counts(sent, f"{name}_counts", self.ranks)
        ids = exchange(
            tf.concat([part for parts in ids_of_ranks for part in parts], 0),
            tf.reduce_sum(sent, 1),
            tf.reduce_sum(received, 1),
            f"{name}_ids",
            self.ranks,
        )
        theirs = _divided(ids, received)
        found = []
        for index, placed in enumerate(tables):
            of_table = [parts[index] for parts in theirs]
            own = weights[placed.table.name]
            found.append(table_lookup(own, of_table, with_gradient=with_gradient))
        own_widths = [p.of_rank(self.ranks.rank).columns for p in tables]
        widths = [[p.of_rank(rank).columns for p in tables] for rank in range(size)]
        back_sent, back_received = received * [own_widths], sent * widths
        flat = [tf.reshape(of_table[rank], [-1]) for rank in range(size) for of_table in found]
        numbers = exchange(
            tf.concat(flat, 0),
            tf.reduce_sum(back_sent, 1),
            tf.reduce_sum(back_received, 1),
            f"{name}_vectors",
            self.ranks,
        )
        parts = _divided(numbers, back_received)
        return [
            self._join(placed, asked[index], [of_rank[index] for of_rank in parts])
            for index, placed in enumerate(tables)
        ]

    def _join(self, placed: TableShards, asked: Asked, parts: list[tf.Tensor]) -> tf.Tensor:
        """Put a table's vectors together from what each rank sent."""
        shards = [shard for shard in placed.shards if shard.rows]
        pieces = [tf.reshape(parts[shard.rank], [-1, shard.columns]) for shard in shards]
        if placed.cut is Cut.ROWS:
            indices = [asked.indices[shard.rank] for shard in shards]
            return tf.ensure_shape(tf.dynamic_stitch(indices, pieces), [None, placed.table.width])
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, 1)


def _divided(values: tf.Tensor, sizes: tf.Tensor) -> list[list[tf.Tensor]]:
    """Divide what came into [rank][table]."""
    ranks, tables = sizes.shape
    parts = tf.split(values, tf.reshape(sizes, [-1]), num=ranks * tables)
    return [parts[rank * tables : (rank + 1) * tables] for rank in range(ranks)]
