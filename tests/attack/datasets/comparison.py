"""Whether what the feed gave is what arrow read."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrow_truth import NUMBERS
from .descriptions import Descriptions


def difference(
    rows: dict[str, np.ndarray], wanted: dict[str, list[Any]], facts: Descriptions
) -> str:
    """Say in what ``rows`` differ from what is wanted; empty where in nothing."""
    if set(rows) != set(wanted):
        return f"columns {sorted(set(rows) ^ set(wanted))} are in one of both only"
    for name, cells in wanted.items():
        found = rows[name]
        expected = as_array(cells, facts.features[name].length)
        if facts.features[name].channel in NUMBERS:  # they are fed as float32
            found, expected = found.astype(np.float32), expected.astype(np.float32)
        if found.shape != expected.shape:
            return f"{name}: the shape {found.shape}, by arrow {expected.shape}"
        same = np.array([_equal(f, e) for f, e in zip(found.tolist(), expected, strict=True)])
        if not same.all():
            row = int(np.argmin(same))
            return f"{name}, row {row}: {found[row].tolist()}, by arrow {expected[row]}"
    return ""


def as_array(cells: list[Any], length: int | None) -> np.ndarray:
    """The cells as the feed has to give them: histories' newest values at the right end."""
    if length is None:
        result = np.empty(len(cells), object)
        result[:] = cells
        return result
    result = np.zeros((len(cells), length), object)
    for row, cell in enumerate(cells):
        newest = cell[-length:]
        if newest:
            result[row, length - len(newest) :] = newest
    return result


def _equal(found: Any, expected: Any) -> bool:
    if isinstance(found, list):
        return found == list(expected)
    return bool(found == expected)
