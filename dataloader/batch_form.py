"""What the schema says of a batch's form: which lists become dense, which ids int32 can hold."""

from __future__ import annotations

import numpy as np
from merlin.schema import Schema

from ..foundation.exceptions import MerlinSimError
from ..schemas.channels import tag_names
from ..schemas.known_keys import domain_of


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
        if "target" in tag_names(column) and tag_names(column) & {"binary_classification", "binary"}
    )


def largest_ids(schema: Schema) -> dict[str, int]:
    """Name the columns of ids, with the last id that each column's table has a row for."""
    return {
        column.name: domain[1]
        for column in schema
        # Not of its int_domain, which there is of columns declared as integers only.
        if (domain := domain_of(column)) is not None
    }


def small_ids(schema: Schema) -> frozenset[str]:
    """Name the columns of ids that int32 can hold."""
    return frozenset(name for name, largest in largest_ids(schema).items() if largest < 2**31)
