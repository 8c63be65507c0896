"""What the schema says of a batch's form: which lists become dense, which ids int32 can hold."""

from __future__ import annotations

import numpy as np
from merlin.schema import Schema

from ..schemas.exceptions import MerlinSimError


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


def small_ids(schema: Schema) -> frozenset[str]:
    """Name the columns of ids that int32 can hold."""
    return frozenset(
        column.name
        for column in schema
        if column.int_domain is not None and 0 < (column.int_domain.max or 0) < 2**31
    )
