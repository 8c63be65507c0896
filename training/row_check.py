"""Refuses rows that would train nonsense: ids beyond their table, labels other than 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.channels import HISTORY_TIME_INTERVALS, NEGATIVE_HISTORY, POSITIVE_HISTORY
from .columns import Column, DecodedRows, ListColumn
from .row_source import DataError


class RowCheck:
    """Checks decoded rows against the Merlin schema; called once for each decoded piece.

    Args:
        schema: a categorical column's ``domain`` says which ids its table has rows for
            (0 to max), a column tagged as binary target takes 0 and 1.
    """

    def __init__(self, schema: Any) -> None:
        """Read from the schema what is allowed."""
        self._largest: dict[str, int] = {}
        self._labels: set[str] = set()
        self._histories = [
            [column.name for column in schema if channels & _tags(column)]
            for channels in ({POSITIVE_HISTORY, HISTORY_TIME_INTERVALS}, {NEGATIVE_HISTORY})
        ]
        for column in schema:
            tags = _tags(column)
            domain = column.int_domain
            if "target" in tags:
                if "binary_classification" in tags or "binary" in tags:
                    self._labels.add(column.name)
            elif domain is not None and domain.max and "categorical" in tags:
                self._largest[column.name] = int(domain.max)

    def __call__(self, decoded: DecodedRows) -> None:
        """Raise a :class:`DataError` that names the file, row, column and value."""
        for name, column in decoded.columns.items():
            if column.nulls:
                self._refuse(decoded, name, _nulls(column), "a missing value")
            values = column.values
            if not len(values):
                continue
            if name in self._largest:
                largest = self._largest[name]
                low, high = decoded.bounds.get(name) or (values.min(), values.max())
                if low < 0 or high > largest:
                    bad = (values < 0) | (values > largest)
                    self._refuse(decoded, name, bad, f"an id outside 0 to {largest}")
            elif name in self._labels:
                if values.dtype != np.bool_:
                    bad = ~((values == 0) | (values == 1))
                    if bad.any():
                        self._refuse(decoded, name, bad, "a label other than 0 and 1")
            elif values.dtype.kind == "f" and not np.isfinite(values.sum()):
                self._refuse(decoded, name, ~np.isfinite(values), "a number that is not finite")
        for names in self._histories:
            for name in names[1:]:
                self._compare_lengths(decoded, names[0], name)

    def _compare_lengths(self, decoded: DecodedRows, first: str, second: str) -> None:
        """Refuse histories of two features that do not go through the same interactions."""
        one, other = decoded.columns[first], decoded.columns[second]
        if not isinstance(one, ListColumn) or not isinstance(other, ListColumn):
            return
        if np.array_equal(one.offsets, other.offsets):
            return
        lengths, others = np.diff(one.offsets), np.diff(other.offsets)
        row = int(np.argmax(lengths != others))
        raise DataError(
            f"{decoded.origin}, row {decoded.first_row + row}: {first} and {second} should be"
            f" equally long. Received: {lengths[row]} and {others[row]} elements."
        )

    def _refuse(
        self, decoded: DecodedRows, name: str, bad: npt.NDArray[np.bool_], what: str
    ) -> None:
        if not bad.any():
            return
        position = int(np.argmax(bad))
        column = decoded.columns[name]
        row = column.row_of(position) if isinstance(column, ListColumn) else position
        value = column.values[position]
        raise DataError(
            f"{decoded.origin}, row {decoded.first_row + row}: column {name} holds {what}."
            f" Received: {value}."
        )


def _tags(column: Any) -> set[str]:
    return {getattr(tag, "value", tag) for tag in column.tags}


def _nulls(column: Column) -> npt.NDArray[np.bool_]:
    values = column.values
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "O":
        return np.array([value is None for value in values], dtype=np.bool_)
    return np.zeros(len(values), np.bool_)
