"""Refuses rows that would train nonsense: ids beyond their table, labels other than 0 and 1."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from merlin.schema import Schema

from ..schemas.channels import known_channel, tag_names
from .arrow_columns import Array, Column
from .batch_form import binary_labels, largest_ids
from .data_error import DataError

LARGEST_NUMBER = float(np.finfo(np.float32).max)
"""Models compute in 32 bits: what is beyond it would be infinite there."""

Where = Callable[[int], str]
"""Names the file and the row of one of the rows that are looked at."""


class RowCheck:
    """Holds columns of rows against the Merlin schema.

    Args:
        schema: a categorical column's ``domain`` says which ids its table has rows for
            (0 to max), a column tagged as binary target takes 0 and 1.
    """

    def __init__(self, schema: Schema) -> None:
        """Read from the schema what is allowed."""
        self.largest = largest_ids(schema)
        self.labels = binary_labels(schema)
        self.aligned = aligned_lists(schema)
        self.widths = vector_widths(schema)

    def __call__(self, name: str, column: Column, where: Where) -> None:
        """Look at the values of a column.

        Raises:
            DataError: naming the file, row, column and value.
        """
        if column.missing is not None:
            raise DataError(
                f"{where(column.missing)}: column {name} holds a missing value. Received: null."
            )
        values = column.values
        if not len(values):
            return
        wrong: npt.NDArray[np.bool_] | None = None
        if name in self.largest:
            largest = self.largest[name]
            if values.dtype.kind == "f":
                whole = np.isfinite(values) & (np.floor(values) == values)
                _refuse(name, column, ~whole, "an id that is not a whole number", where)
            low, high = column.bounds or (values.min(), values.max())
            what = f"an id outside 0 to {largest}"
            if low < 0 or high > largest:
                wrong = (values < 0) | (values > largest)
        elif name in self.labels:
            what = "a label other than 0 and 1"
            if values.dtype != np.bool_:
                wrong = (values != 0) & (values != 1)
        elif values.dtype.kind == "f":
            what = "a number that is not finite in 32 bits"
            if not (-LARGEST_NUMBER <= values.min() and values.max() <= LARGEST_NUMBER):
                wrong = ~(np.abs(values) <= LARGEST_NUMBER)
        if wrong is not None:
            _refuse(name, column, wrong, what, where)

    def lengths(self, lengths: dict[str, Array], where: Where) -> None:
        """Look at how long the lists of each column are.

        Raises:
            DataError: where vectors have another length than their column, or where histories of
                two features do not go through the same interactions.
        """
        for name in self.widths.keys() & lengths.keys():
            width = self.widths[name]
            wrong = lengths[name] != width
            if wrong.any():
                row = int(np.argmax(wrong))
                raise DataError(
                    f"{where(row)}: column {name} should hold vectors of {width} numbers."
                    f" Received: {lengths[name][row]}."
                )
        for first, *others in self.aligned:
            for other in others if lengths.keys() >= {first, *others} else []:
                wrong = lengths[first] != lengths[other]
                if wrong.any():
                    row = int(np.argmax(wrong))
                    raise DataError(
                        f"{where(row)}: {first} and {other} should be equally long."
                        f" Received: {lengths[first][row]} and {lengths[other][row]} elements."
                    )


def _refuse(
    name: str, column: Column, wrong: npt.NDArray[np.bool_], what: str, where: Where
) -> None:
    if wrong.any():
        position = int(np.argmax(wrong))
        raise DataError(
            f"{where(column.row_of(position))}: column {name} holds {what}."
            f" Received: {column.values[position]}."
        )


def vector_widths(schema: Schema) -> dict[str, int]:
    """Name the columns of vectors, with their length."""
    channels = {column.name: map(known_channel, tag_names(column)) for column in schema}
    return {
        name: int(schema[name].value_count.max)
        for name, found in channels.items()
        if schema[name].is_list and any(channel and channel.takes_vectors for channel in found)
    }


def aligned_lists(schema: Schema) -> list[list[str]]:
    """Return the columns of lists that must be equally long in a row, group by group."""
    groups: dict[str, list[str]] = {}
    for column in schema:
        for tag in sorted(tag_names(column)):
            channel = known_channel(tag)
            if channel is not None and channel.is_list:
                groups.setdefault(channel.aligned_with or tag, []).append(column.name)
    return list(groups.values())
