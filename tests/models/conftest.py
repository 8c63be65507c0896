"""Schemas and batches of the SIM family, small enough to build a model in no time."""

from __future__ import annotations

import pytest
from merlin.schema import ColumnSchema, Schema, Tags


def make_schema(
    users=(9,), items=(20, 6), history_length=10, *, ragged=True, negatives=True, intervals=False
):
    """A SIM-family schema: cardinalities of the user and item features, longest history."""
    least = 0 if ragged else history_length

    def categorical(name, domain, cardinality, tags, **kwargs):
        properties = {"domain": {"min": 0, "max": cardinality, "name": domain}}
        tags = [Tags.CATEGORICAL, *tags]
        return ColumnSchema(name, dtype="int64", tags=tags, properties=properties, **kwargs)

    lists = {"dims": (None, (least, history_length))}
    sequence = [Tags.SEQUENCE, Tags.LIST]
    tags = ["label", Tags.TARGET, Tags.BINARY_CLASSIFICATION]
    columns = [ColumnSchema("label", dtype="int64", tags=tags)]
    for i, cardinality in enumerate(users):
        tags = ["user_features", Tags.USER]
        columns.append(categorical(f"user_{i}", f"user_{i}", cardinality, tags))
    for i, cardinality in enumerate(items):
        tags = ["target_item_features", Tags.ITEM]
        columns.append(categorical(f"item_{i}", f"item_{i}", cardinality, tags))
    for i, cardinality in enumerate(items):
        tags = ["positive_history", *sequence]
        columns.append(categorical(f"item_{i}_hist", f"item_{i}", cardinality, tags, **lists))
    for i, cardinality in enumerate(items if negatives else ()):
        tags = ["negative_history", *sequence]
        columns.append(categorical(f"item_{i}_neg_hist", f"item_{i}", cardinality, tags, **lists))
    if intervals:
        tags = ["history_time_intervals", Tags.TIME, Tags.CONTINUOUS, *sequence]
        columns.append(ColumnSchema("intervals", dtype="float32", tags=tags, **lists))
    return Schema(columns)


@pytest.fixture(name="make_schema", scope="session")
def make_schema_fixture():
    return make_schema
