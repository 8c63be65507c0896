"""What the schema says of a batch's form: which lists become dense, which ids int32 can hold."""

from __future__ import annotations

import numpy as np
from merlin.schema import ColumnSchema, Schema

from ..foundation.exceptions import MerlinSimError


def list_widths(schema: Schema, ragged: bool) -> dict[str, int]:
    """Name the list columns that become dense, with their widths.

    Args:
        schema: value counts say which lists have a fixed length.
        ragged: count ragged columns in; each must say its longest length.

    Raises:
        MerlinSimError: where a ragged column has no longest length.
    """
    widths = {}
    for column in schema:
        if not column.is_list:
            continue
        longest = column.shape.dims[1].max
        if column.is_ragged and not ragged:
            continue
        if longest is None or not np.isfinite(longest):
            raise MerlinSimError(
                f"column {column.name} cannot be padded: its value_count has no maximum."
            )
        widths[column.name] = int(longest)
    return widths


def binary_labels(schema: Schema) -> frozenset[str]:
    """Name the columns of labels that are 0 or 1."""
    return frozenset(
        column.name
        for column in schema
        if "target" in tags_of(column) and tags_of(column) & {"binary_classification", "binary"}
    )


def largest_ids(schema: Schema) -> dict[str, int]:
    """Name the columns of ids, with the last id that each column's table has a row for."""
    return {
        column.name: int(largest)
        for column in schema
        if "categorical" in tags_of(column) and "target" not in tags_of(column)
        # Not its int_domain, which there is of columns declared as integers only.
        if (largest := (column.properties.get("domain") or {}).get("max")) is not None
    }


def small_ids(schema: Schema) -> frozenset[str]:
    """Name the columns of ids that int32 can hold."""
    return frozenset(name for name, largest in largest_ids(schema).items() if largest < 2**31)


def tags_of(column: ColumnSchema) -> set[str]:
    """Return a column's tags as words."""
    return {getattr(tag, "value", tag) for tag in column.tags}
