"""Decimal numbers that are named as features of keys: one category for each spelling of a price."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..behaviour.behaviour_columns import BehaviourColumns
from ..features.raw_numbers import LARGEST_OF_64_BITS, numbers_of
from .csv_file import CsvReader

NUMBER_HINT = "`--features` names columns of numbers; its type `category` takes them as keys"


def decimal_problems(path: Path, names: list[str], columns: BehaviourColumns) -> list[str]:
    """Say which features of a CSV file's beginning hold decimal numbers and nothing else.

    Parquet has such columns as floating-point numbers, which cannot be keys either.

    Args:
        path: The file.
        names: The columns that it has.
        columns: Which are features.
    """
    features = (*columns.user_features, *columns.item_features)
    asked = [n for n in features if n in names and n not in columns.features.columns]
    if not asked:
        return []
    with CsvReader(path, asked, []) as reader:
        batch = next((batch for batch, _ in reader.batches()), None)
    if batch is None:
        return []
    return [
        f"{path}: column {name!r}: expected text or whole numbers, found decimal numbers such as "
        f"{example} ({NUMBER_HINT})."
        for name in asked
        if (example := _decimal_number(batch[name])) is not None
    ]


def _decimal_number(values: pa.Array) -> str | None:
    """The first decimal number of a column that holds numbers alone."""
    words = pc.unique(values)
    numbers, bad = numbers_of(words, LARGEST_OF_64_BITS)
    if bad.any() or not numbers.is_valid().to_numpy(zero_copy_only=False).any():
        return None
    is_decimal = np.array([b"." in word or b"e" in word.lower() for word in words.to_pylist()])
    if not is_decimal.any():
        return None
    return str(words[int(np.argmax(is_decimal))].as_py().decode())
