"""Tables of vectors for the categorical features of a Merlin schema."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block
from merlin.models.tf.inputs.embedding import EmbeddingTable
from merlin.schema import ColumnSchema, Schema, Tags

from ..checks import OptionError, check_positive
from ..serialization import register_block, schema_from, schema_json
from .spread_lookup import SpreadLookup
from .spread_tables import Spread, current_spread, placed_table
from .table_lookup import plain_lookup, table_lookup

MOST_ROWS = 2**31 - 1
"""Rows of a table at most: models have ids as int32."""


@register_block
class FeatureEmbedding(Block):
    """One table per domain name: target, positive and negative history share theirs.

    A table has a row for every id of its domain, 0 (padding) included, and starts uniform in
    +-1/sqrt(rows). A call gives each table one sparse gradient, whatever the number of columns and
    parts looked up in it: see :func:`~.table_lookup.table_lookup`. Where a step asks for gradients
    of whole tables, 0 in a column tagged ``SEQUENCE`` has none: it is padding, which is masked.

    >>> from merlin.schema import ColumnSchema, Schema, Tags
    >>> domain = {"domain": {"min": 0, "max": 9, "name": "item"}}
    >>> column = ColumnSchema("item_id", dtype="int64", tags=[Tags.CATEGORICAL], properties=domain)
    >>> embedding = FeatureEmbedding(Schema([column]), dim=4)
    >>> embedding({"item_id": tf.constant([1, 2])})["item_id"].shape
    TensorShape([2, 4])

    Args:
        schema: The categorical columns to embed; other columns of it are refused.
        dim: Length of the vectors.
    """

    def __init__(self, schema: Schema | str, dim: int = 16, **kwargs: Any) -> None:
        """Make one table for each domain of the schema."""
        super().__init__(autocast=False, **kwargs)
        schema = schema_from(schema)
        self.dim = check_positive("dim", dim)
        self.set_schema(schema)
        spread = current_spread()
        self.tables = _tables(schema, dim, spread)
        self.domain_of = {
            name: domain for domain, table in self.tables.items() for name in table.features
        }
        self._histories = frozenset(schema.select_by_tag(Tags.SEQUENCE).column_names)
        self._device_of = spread.device_of if spread else _as_ever
        self._lookup = _spread_lookup(spread, list(self.tables), f"{self.name}_lookup")

    def build(self, input_shape: Any) -> None:
        """Create the tables; their sizes stand in the schema."""
        for name, table in self.tables.items():
            if not table.table.built:
                with tf.name_scope(table.name), self._device_of(name):
                    table.table.build(tf.TensorShape([None]))
                table.built = True
        super().build(input_shape)

    def call(self, inputs: Mapping[str, Any], with_gradient: bool = True) -> dict[str, Any]:
        """Look ids up.

        Args:
            inputs: Column name -> ids of any shape, or a list or tuple of such tensors (the parts
                of a split history, each looked up by itself).
            with_gradient: Whether to prepare for a gradient. Without, lookups cost less, and a
                gradient that is asked for all the same has a row for each id.

        Returns:
            Column name -> vectors, with one axis of length ``dim`` more than the ids.
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
            if domain in found or not parts:
                continue
            if with_gradient:
                found[domain] = table_lookup(weights[domain], parts, padded_of[domain])
            else:
                found[domain] = plain_lookup(weights[domain], parts)
        vectors_of = {domain: iter(vectors) for domain, vectors in found.items()}
        outputs = {}
        for name, ids in inputs.items():
            vectors = [
                tf.cast(next(vectors_of[self.domain_of[name]]), self.compute_dtype)
                for _ in tf.nest.flatten(ids)
            ]
            outputs[name] = tf.nest.pack_sequence_as(ids, vectors)
        return outputs

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "schema": schema_json(self.schema),
            "dim": self.dim,
        }


def _as_ever(table: str) -> Any:
    return nullcontext()


def _spread_lookup(spread: Spread | None, tables: list[str], name: str) -> SpreadLookup | None:
    """Make what looks up those of the tables that are spread; None where there are none."""
    if spread is None:
        return None
    moved = [spread.plan.by_name[table] for table in tables if spread.plan.by_name[table].shards]
    return SpreadLookup(moved, spread.ranks, name) if moved else None


def _tables(schema: Schema, dim: int, spread: Spread | None) -> dict[str, EmbeddingTable]:
    by_domain: dict[str, list[ColumnSchema]] = {}
    for column in schema:
        domain = column.int_domain
        if domain is None or domain.max is None:
            raise OptionError(
                f"Column {column.name!r} cannot be embedded: its schema should have a domain with "
                f"its largest id. Received: properties = {column.properties!r}."
            )
        by_domain.setdefault(domain.name or column.name, []).append(column)
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
        if spread is None:
            limit = height**-0.5
            start = tf.keras.initializers.RandomUniform(-limit, limit)
            kept: dict[str, Any] = {"embeddings_initializer": start}
        else:
            kept = {"table": placed_table(spread, domain_name, height, dim)}
        tables[domain_name] = EmbeddingTable(dim, *columns, name=domain_name, **kept)
    return tables
