"""Tables of vectors for the categorical features of a Merlin schema."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block
from merlin.models.tf.inputs.embedding import EmbeddingTable
from merlin.schema import ColumnSchema, Schema, Tags

from ....parallel.ranks import collectives
from ....schemas.channels import domain_of
from ..checks import OptionError, check_positive
from ..serialization import ConfiguredBlock, part_from, register_block, schema_from, schema_json
from ..shapes import as_ids
from .sharded_tables import ShardedLookup, Sharding, current_sharding, placed_table
from .table_lookup import table_lookup

MOST_ROWS = 2**31 - 1
"""Rows of a table at most: on a processor models have ids as int32."""


@register_block
class FeatureEmbedding(Block):
    """One table per domain name: target, positive and negative history share theirs.

    A table is Merlin's, ``mm.EmbeddingTable``: one that was given, or one that is made here, with a
    row for every id of its domain, 0 (padding) included, which starts uniform in +-1/sqrt(rows).
    A call gives each table one sparse gradient, whatever the number of columns and parts looked up
    in it (:func:`~.table_lookup.table_lookup`), where Merlin's own call would give one for each.
    What a table is regularised by is a loss of this block. Where a step asks for gradients of whole
    tables, 0 in a column tagged ``SEQUENCE`` has none: it is padding, which is masked.

    >>> from merlin.schema import ColumnSchema, Schema, Tags
    >>> domain = {"domain": {"min": 0, "max": 9, "name": "item"}}
    >>> column = ColumnSchema("item_id", dtype="int64", tags=[Tags.CATEGORICAL], properties=domain)
    >>> embedding = FeatureEmbedding(Schema([column]), dim=4)
    >>> embedding({"item_id": tf.constant([1, 2])})["item_id"].shape
    TensorShape([2, 4])

    Args:
        schema: The categorical columns to embed; other columns of it are refused.
        dim: Length of the vectors of the tables that are made.
        tables: The tables to take, as :func:`given_tables` finds them.
        dims: Domain name -> length of its vectors, of tables that are made with another one.
    """

    def __init__(
        self,
        schema: Schema | str,
        dim: int = 16,
        tables: Any = None,
        dims: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a table for each domain of the schema that none is given for."""
        super().__init__(autocast=False, **kwargs)
        schema = schema_from(schema)
        self.dim = check_positive("dim", dim)
        self.set_schema(schema)
        sharding = current_sharding()
        self.domain_of = {column.name: domain_of(column) for column in schema}
        given = given_tables(tables, schema)
        self.dims = {name: check_positive("dims", of_one) for name, of_one in (dims or {}).items()}
        dim_of = {name: self.dims.get(name, dim) for name in self.domain_of.values()}
        self.tables = _tables(schema, dim_of, sharding, given)
        self._given = sorted(given)
        self.width_of = {name: self.tables[d].dim for name, d in self.domain_of.items()}
        self._histories = frozenset(schema.select_by_tag(Tags.SEQUENCE).column_names)
        self._device_of = sharding.device_of if sharding else lambda table: nullcontext()
        self._lookup = _sharded_lookup(sharding, list(self.tables), f"{self.name}_lookup")

    def build(self, input_shape: Any) -> None:
        """Create the tables; their sizes stand in the schema."""
        for name, table in self.tables.items():
            if not table.table.built:
                with tf.name_scope(table.name), self._device_of(name):
                    table.table.build(tf.TensorShape([None]))
            table.built = True
        super().build(input_shape)

    def call(self, inputs: Mapping[str, Any], with_gradient: bool = True) -> dict[str, Any]:
        """Look ids up: column name -> vectors, with one axis more than the ids.

        Args:
            inputs: Column name -> ids of any shape, or a list or tuple of such tensors (the parts
                of a split history, each looked up by itself).
            with_gradient: Whether to prepare for a gradient. Without, lookups cost less, and a
                gradient that is asked for all the same has a row for each id.
        """
        parts_of: dict[str, list[tf.Tensor]] = {domain: [] for domain in self.tables}
        padded_of: dict[str, list[bool]] = {domain: [] for domain in self.tables}
        for name, ids in inputs.items():
            parts, domain = tf.nest.flatten(ids), self.domain_of[name]
            parts_of[domain].extend(parts)
            padded_of[domain].extend([name in self._histories] * len(parts))
        weights = {name: table.table.embeddings for name, table in self.tables.items()}
        found = self._lookup(weights, parts_of, with_gradient) if self._lookup else {}
        for domain, parts in parts_of.items():
            if parts and domain not in found:
                table, padded = weights[domain], padded_of[domain]
                found[domain] = table_lookup(table, parts, padded, with_gradient)
        if with_gradient:
            self._regularize(found)
        vectors_of = {domain: iter(vectors) for domain, vectors in found.items()}
        outputs = {}
        for name, ids in inputs.items():
            vectors = [
                tf.cast(next(vectors_of[self.domain_of[name]]), self.compute_dtype)
                for _ in tf.nest.flatten(ids)
            ]
            outputs[name] = tf.nest.pack_sequence_as(ids, vectors)
        return outputs

    def _regularize(self, looked_up: Mapping[str, list[tf.Tensor]]) -> None:
        """Add the losses of tables that regularise the vectors of a batch.

        What a rank reads is its part of a sum, and losses are averaged over ranks.
        """
        for domain, vectors in looked_up.items():
            factor = self.tables[domain].l2_batch_regularization_factor
            if factor > 0:
                factor *= collectives.joined().size
                self.add_loss(factor * tf.add_n([tf.reduce_sum(part**2) for part in vectors]))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "schema": schema_json(self.schema),
            "dim": self.dim,
            "tables": tables_config({name: self.tables[name] for name in self._given}),
            "dims": dict(self.dims),
        }


def given_tables(given: Any, schema: Schema) -> dict[str, EmbeddingTable]:
    """Find the tables that were given for some columns: domain name -> table.

    Args:
        given: None; or name of a domain or of a column -> ``mm.EmbeddingTable``, or the
            configuration that :func:`tables_config` made of it; or a Merlin block that has tables
            of these columns, as ``mm.InputBlockV2`` and ``mm.Embeddings`` make it.
        schema: The columns that are looked up.

    Raises:
        OptionError: Naming the table that none of the columns reads, or that does not fit.
    """
    if given is None:
        return {}
    domains = {domain_of(c): int(c.int_domain.max or 0) + 1 for c in schema if c.int_domain}
    names = {**{column.name: domain_of(column) for column in schema}, **{d: d for d in domains}}
    if isinstance(given, Mapping):
        found = {name: part_from(table) for name, table in given.items()}
    else:
        layers = (given, *given.submodules) if isinstance(given, tf.keras.layers.Layer) else ()
        of_block = [layer for layer in layers if isinstance(layer, EmbeddingTable)]
        # A block may have tables of other columns too, which are no concern of this one.
        found = {table.table_name: table for table in of_block if table.table_name in domains}
    unknown = sorted(set(found) - set(names))
    if unknown or (not found and not isinstance(given, Mapping)):
        raise OptionError(
            "`tables` should name domains or columns that are looked up, or be a Merlin block with "
            f"their tables: {', '.join(sorted(domains))}. Received: {unknown or given!r}."
        )
    tables = {names[name]: table for name, table in found.items()}
    for domain, table in tables.items():
        _check_table(domain, table, domains[domain])
    return tables


def _check_table(domain: str, table: Any, rows: int) -> None:
    """Refuse a table that has another size, or does what a block would pass by."""
    if not isinstance(table, EmbeddingTable) or type(table).call is not EmbeddingTable.call:
        problem = f"an mm.EmbeddingTable. Received: {table!r}"
    elif table.input_dim != rows:
        problem = f"one with {rows} rows, one for each id. Received: {table.input_dim} rows"
    elif table.sequence_combiner is not None:
        problem = (
            "one without `sequence_combiner`, because each position of a history is read. "
            f"Received: {table.sequence_combiner!r}. Expected as of mm.Embeddings("
            "schema.select_by_tag(Tags.CATEGORICAL), dim=16, sequence_combiner=None), which "
            "mm.InputBlockV2(schema, categorical=...) takes too"
        )
    elif table.table.activity_regularizer is not None:
        problem = "one without `activity_regularizer`; `l2_batch_regularization_factor` is known"
    else:
        return
    raise OptionError(f"`tables`: the table of {domain!r} should be {problem}.")


def tables_config(tables: Mapping[str, EmbeddingTable]) -> dict[str, Any] | None:
    """Return what rebuilds tables that were given; None without any."""
    return {name: tf.keras.layers.serialize(table) for name, table in tables.items()} or None


def _sharded_lookup(
    sharding: Sharding | None, tables: list[str], name: str
) -> ShardedLookup | None:
    """Make what looks up those of the tables that are spread; None where there are none."""
    if sharding is None:
        return None
    moved = [
        sharding.plan.by_name[table] for table in tables if sharding.plan.by_name[table].shards
    ]
    return ShardedLookup(moved, sharding.ranks, name) if moved else None


def _tables(
    schema: Schema,
    dim_of: Mapping[str, int],
    sharding: Sharding | None,
    given: Mapping[str, EmbeddingTable],
) -> dict[str, EmbeddingTable]:
    if sharding is not None and given:
        raise OptionError(
            f"`tables` should be None where tables are spread over ranks. Received: {list(given)}."
        )
    by_domain: dict[str, list[ColumnSchema]] = {}
    for column in schema:
        domain = column.int_domain
        if domain is None or domain.max is None:
            raise OptionError(
                f"Column {column.name!r} cannot be embedded: its schema should have a domain with "
                f"its largest id. Received: properties = {column.properties!r}."
            )
        by_domain.setdefault(domain_of(column), []).append(column)
    tables = {}
    for domain_name, columns in by_domain.items():
        rows = {column.name: column.int_domain.max + 1 for column in columns}
        if len(set(rows.values())) > 1:
            raise OptionError(
                f"Columns of the domain {domain_name!r} share one table and should have the same "
                f"largest id. Received rows: {rows!r}."
            )
        height = next(iter(rows.values()))
        if height > MOST_ROWS:
            raise OptionError(
                f"The table of {', '.join(map(repr, rows))} (domain {domain_name!r}) should have "
                f"at most {MOST_ROWS:,} rows: models look ids up as 32-bit integers. Received: "
                f"{height:,}, one for each id up to the domain's largest. Encode the column with "
                "fewer ids, for instance by hashing it."
            )
        if domain_name in given:
            tables[domain_name] = given[domain_name]
            continue
        dim = dim_of[domain_name]
        if sharding is None:
            limit = height**-0.5
            start = tf.keras.initializers.RandomUniform(-limit, limit)
            kept: dict[str, Any] = {"embeddings_initializer": start}
        else:
            kept = {"table": placed_table(sharding, domain_name, height, dim)}
        tables[domain_name] = EmbeddingTable(dim, *columns, name=domain_name, **kept)
    return tables


def mean_vectors(vectors: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Return the mean over each list of the vectors whose id is not 0; zeros for an empty list.

    >>> vectors = tf.constant([[[1.0], [3.0], [8.0]], [[5.0], [5.0], [5.0]]])
    >>> mean_vectors(vectors, tf.constant([[4, 2, 0], [0, 0, 0]])).numpy().tolist()
    [[2.0], [0.0]]

    Args:
        vectors: [..., length, dim].
        ids: [..., length], 0 where the list has ended.
    """
    mask = tf.cast(ids > 0, vectors.dtype)[..., tf.newaxis]
    total = tf.reduce_sum(vectors * mask, axis=-2)
    return tf.math.divide_no_nan(total, tf.reduce_sum(mask, axis=-2))


@register_block
class TimeIntervalEmbedding(ConfiguredBlock):
    """A table over intervals by their order of magnitude: row floor(log2(1 + interval)).

    The same for any unit of time: with 32 rows seconds reach 136 years. Intervals below 0 and NaN
    count as 0, those beyond the table as its last row. (SIM, https://arxiv.org/abs/2006.05639,
    section 3.2, embeds the interval of each position; the paper does not say how it is cut.)

    >>> embedding = TimeIntervalEmbedding(dim=4, buckets=8)
    >>> embedding.bucket(tf.constant([0.0, 1.0, 6.9, 1e9, -5.0])).numpy().tolist()
    [0, 1, 2, 7, 0]

    Args:
        dim: Length of the vectors.
        buckets: Rows of the table.
    """

    def __init__(self, dim: int, buckets: int = 32, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.dim = check_positive("dim", dim)
        self.buckets = check_positive("buckets", buckets)

    def build(self, input_shape: Any) -> None:
        """Create the table."""
        limit = self.buckets**-0.5
        self.table = self.add_weight(
            "table",
            [self.buckets, self.dim],
            initializer=tf.keras.initializers.RandomUniform(-limit, limit),
        )
        super().build(input_shape)

    def bucket(self, intervals: tf.Tensor) -> tf.Tensor:
        """Return the row of each interval."""
        intervals = tf.cast(intervals, tf.float32)
        intervals = tf.where(intervals > 0, intervals, 0.0)  # NaN is not above 0
        magnitude = tf.math.log1p(intervals) / tf.math.log(2.0)
        # The nudge keeps log2(2^k) from being rounded down to k - 1.
        rows = tf.floor(tf.minimum(magnitude + 1e-5, float(self.buckets - 1)))
        return as_ids(rows)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Embed intervals: [...] -> [..., dim]."""
        return tf.gather(tf.convert_to_tensor(self.table), self.bucket(inputs))
