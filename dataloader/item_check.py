"""Refuses a table of items that no sample can be made with, with file, row and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..foundation.exceptions import MerlinSimError
from ..schemas.item_table import COUNT, ID, ItemTable

LARGEST_COUNT = 2**53


def check_items(
    path: Path, table: pa.Table, features: Sequence[str], largest: Sequence[int], negatives: str
) -> None:
    """Look at everything that is known of items.

    Args:
        path: The file.
        table: Its columns.
        features: The items' features but the item itself.
        largest: The last id of the item and of each feature.
        negatives: How negatives are drawn.

    Raises:
        MerlinSimError: With the first thing that is wrong.
    """
    _check_column(path, table, ID, 1, largest[0])
    _check_column(path, table, COUNT, 0, LARGEST_COUNT)
    for name, last in zip(features, largest[1:], strict=True):
        _check_column(path, table, name, 1, last)
    ids = np.asarray(table[ID])
    if len(ids) != largest[0] or len(np.unique(ids)) != largest[0]:
        raise MerlinSimError(f"{path}: column {ID} should hold each of 1 to {largest[0]} once.")
    if not ItemTable(path).counts(negatives).sum():
        raise MerlinSimError(f"{path}: column {COUNT} holds no interaction to draw negatives from.")


def _check_column(path: Path, table: pa.Table, name: str, low: int, high: int) -> None:
    column: Any = table[name].combine_chunks()
    missing = np.asarray(column.is_null())
    values = np.asarray(column.fill_null(low))
    wrong = np.flatnonzero(missing | (values < low) | (values > high))
    if len(wrong):
        row = int(wrong[0])
        raise MerlinSimError(
            f"{path}, row {row + 1}: column {name} should hold {low} to {high}."
            f" Received: {column[row].as_py()}."
        )
