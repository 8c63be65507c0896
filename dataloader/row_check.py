"""Refuses rows that would train nonsense: ids beyond their table, labels other than 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.contracts.known_contracts import known_channel
from .batch_form import binary_labels, largest_ids, tags_of
from .data_error import DataError
from .rows.decoded_rows import DecodedRows, ListColumn

LARGEST_NUMBER = float(np.finfo(np.float32).max)


class RowCheck:
    """Checks decoded rows against the Merlin schema; called once for each decoded piece.

    Args:
        schema: a categorical column's ``domain`` says which ids its table has rows for
            (0 to max), a column tagged as binary target takes 0 and 1.
    """

    def __init__(self, schema: Any) -> None:
        """Read from the schema what is allowed."""
        self._largest = largest_ids(schema)
        self._labels = binary_labels(schema)
        self._aligned = aligned_lists(schema)
        self._widths = vector_widths(schema)

    def __call__(self, decoded: DecodedRows) -> None:
        """Raise a :class:`DataError` that names the file, row, column and value."""
        for name, column in decoded.columns.items():
            if column.missing is not None:
                raise DataError(
                    f"{decoded.where(column.missing)}: column {name}"
                    " holds a missing value. Received: null."
                )
            if name in self._widths:
                self._check_widths(decoded, name, self._widths[name])
            values = column.values
            if not len(values):
                continue
            if name in self._largest:
                self._check_ids(decoded, name, self._largest[name])
            elif name in self._labels:
                if values.dtype != np.bool_:
                    bad = ~((values == 0) | (values == 1))
                    if bad.any():
                        self._refuse(decoded, name, bad, "a label other than 0 and 1")
            elif values.dtype.kind == "f":
                self._check_numbers(decoded, name, values)
        for names in self._aligned:
            for name in names[1:]:
                self._compare_lengths(decoded, names[0], name)

    def _check_ids(self, decoded: DecodedRows, name: str, largest: int) -> None:
        column = decoded.columns[name]
        values = column.values
        if values.dtype.kind == "f":
            whole = np.isfinite(values) & (np.floor(values) == values)
            self._refuse(decoded, name, ~whole, "an id that is not a whole number")
        bounds = column.bounds if isinstance(column, ListColumn) else None
        low, high = bounds or (values.min(), values.max())
        if low < 0 or high > largest:
            bad = (values < 0) | (values > largest)
            self._refuse(decoded, name, bad, f"an id outside 0 to {largest}")

    def _check_numbers(self, decoded: DecodedRows, name: str, values: npt.NDArray[Any]) -> None:
        """Models compute in 32 bits: what is beyond them would be infinite there."""
        if -LARGEST_NUMBER <= values.min() and values.max() <= LARGEST_NUMBER:  # NaN fails both
            return
        bad = ~(np.abs(values) <= LARGEST_NUMBER)
        self._refuse(decoded, name, bad, "a number that is not finite in 32 bits")

    def _check_widths(self, decoded: DecodedRows, name: str, width: int) -> None:
        column = decoded.columns[name]
        if not isinstance(column, ListColumn):
            return
        lengths = np.diff(column.offsets)
        if (lengths != width).any():
            row = int(np.argmax(lengths != width))
            raise DataError(
                f"{decoded.where(row)}: column {name} should hold"
                f" vectors of {width} numbers. Received: {lengths[row]}."
            )

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
            f"{decoded.where(row)}: {first} and {second} should be"
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
        raise DataError(f"{decoded.where(row)}: column {name} holds {what}. Received: {value}.")


def vector_widths(schema: Any) -> dict[str, int]:
    """Name the columns of vectors, with their length."""
    channels = {column.name: map(known_channel, tags_of(column)) for column in schema}
    return {
        name: int(schema[name].value_count.max)
        for name, found in channels.items()
        if schema[name].is_list and any(channel and channel.takes_vectors for channel in found)
    }


def aligned_lists(schema: Any) -> list[list[str]]:
    """Return the columns of lists that must be equally long in a row, group by group."""
    groups: dict[str, list[str]] = {}
    for column in schema:
        for tag in sorted(tags_of(column)):
            channel = known_channel(tag)
            if channel is not None and channel.is_list:
                groups.setdefault(channel.aligned_with or tag, []).append(column.name)
    return list(groups.values())
