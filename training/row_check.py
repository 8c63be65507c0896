"""Refuses rows that would train nonsense: ids beyond their table, labels that are not 0 or 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

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
        for column in schema:
            tags = {getattr(tag, "value", tag) for tag in column.tags}
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


def _nulls(column: Column) -> npt.NDArray[np.bool_]:
    values = column.values
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind == "O":
        return np.array([value is None for value in values], dtype=np.bool_)
    return np.zeros(len(values), np.bool_)
