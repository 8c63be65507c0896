"""Lookups in tables that are spread over ranks.

A batch's distinct ids travel to the ranks that have their vectors, all tables' together; the
vectors come back, and are put together where a table is cut. The gradient takes the same way back
and adds up where the rows are. Every rank builds the same graph, whatever it has: what differs are
sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ....foundation.ranks import Ranks
from ....placement.plan import Cut, Placed
from ....ranks.collectives import exchange, exchange_counts
from ....steps.filler_batch import rows_named
from .table_lookup import plain_lookup, shared_rows, table_lookup


class Asked(NamedTuple):
    """What a batch wants of one table."""

    ids: list[tf.Tensor]
    """Rank -> the ids that it is asked for, counted from its first row."""
    places: list[tf.Tensor]
    """Rank -> their places among the distinct ids."""


class SpreadLookup:
    """Looks ids up in spread tables; all ranks call it together.

    Args:
        tables: the spread tables, in the same order on every rank.
        ranks: the run.
        name: of the exchanges, the same on every rank.
    """

    def __init__(self, tables: Sequence[Placed], ranks: Ranks, name: str) -> None:
        """Remember where the tables are."""
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
        """Look up, for each table, several tensors of ids.

        Args:
            weights: table -> what this rank has of it.
            ids: table -> ids; a table without any is left out.
            with_gradient: whether to prepare for a gradient.

        Returns:
            Table -> for each tensor of ids the vectors.
        """
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
            looked_up[placed.table.name] = of_table.spread(filled, with_gradient)
        return looked_up

    def _ask(self, placed: Placed, rows: tf.Tensor) -> Asked:
        """Say which ranks are asked for which of the distinct ids."""
        everything = tf.range(rows_named(rows))
        asked = Asked([], [])
        for rank in range(self.ranks.size):
            shard = placed.of_rank(rank)
            if not shard.rows:
                places = everything[:0]
            elif placed.cut is Cut.ROWS:
                end = shard.first_row + shard.rows
                named = tf.gather(rows, everything)
                own = tf.logical_and(named >= shard.first_row, named < end)
                places = tf.cast(tf.where(own)[:, 0], tf.int32)
            else:
                places = everything
            asked.ids.append(tf.gather(rows, places) - tf.cast(shard.first_row, rows.dtype))
            asked.places.append(places)
        return asked

    def _fetch(
        self,
        name: str,
        tables: list[Placed],
        weights: Mapping[str, tf.Variable],
        asked: list[Asked],
        with_gradient: bool,
    ) -> list[tf.Tensor]:
        """Return the vectors of the distinct ids of each table."""
        size = self.ranks.size
        kind = tf.int64 if any(a.ids[0].dtype == tf.int64 for a in asked) else tf.int32
        wanted = [[tf.cast(one.ids[rank], kind) for one in asked] for rank in range(size)]
        sent = tf.stack([[tf.size(part) for part in parts] for parts in wanted])
        received = exchange_counts(sent, f"{name}_counts", self.ranks)
        ids = exchange(
            tf.concat([part for parts in wanted for part in parts], 0),
            tf.reduce_sum(sent, 1),
            tf.reduce_sum(received, 1),
            f"{name}_ids",
            self.ranks,
        )
        theirs = _divided(ids, received)
        found = []
        for place, placed in enumerate(tables):
            of_table = [parts[place] for parts in theirs]
            own = weights[placed.table.name]
            if with_gradient:
                found.append(table_lookup(own, of_table))
            else:
                found.append(plain_lookup(own, of_table))
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
            self._join(placed, asked[place], [of_rank[place] for of_rank in parts])
            for place, placed in enumerate(tables)
        ]

    def _join(self, placed: Placed, asked: Asked, parts: list[tf.Tensor]) -> tf.Tensor:
        """Put a table's vectors together from what each rank sent."""
        shards = [shard for shard in placed.shards if shard.rows]
        pieces = [tf.reshape(parts[shard.rank], [-1, shard.columns]) for shard in shards]
        if placed.cut is Cut.ROWS:
            places = [asked.places[shard.rank] for shard in shards]
            return tf.ensure_shape(tf.dynamic_stitch(places, pieces), [None, placed.table.width])
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, 1)


def _divided(values: tf.Tensor, sizes: tf.Tensor) -> list[list[tf.Tensor]]:
    """Divide what came into [rank][table]."""
    ranks, tables = sizes.shape
    parts = tf.split(values, tf.reshape(sizes, [-1]), num=ranks * tables)
    return [parts[rank * tables : (rank + 1) * tables] for rank in range(ranks)]
