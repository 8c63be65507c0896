"""A part of one array: the rows and columns that one rank has of a variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Range(NamedTuple):
    """Places from ``begin`` to ``end``, the end not included."""

    begin: int
    end: int

    def overlap(self, other: Range) -> Range:
        """Return what both have; nothing is an end that is not behind its begin."""
        return Range(max(self.begin, other.begin), min(self.end, other.end))

    def within(self, other: Range) -> slice:
        """Return where this range stands in an array that holds ``other``."""
        return slice(self.begin - other.begin, self.end - other.begin)


def extents(shape: Iterable[int]) -> tuple[Range, Range]:
    """Return all rows and all columns of a shape; an axis that is not there has one place.

    >>> extents([7]), extents([7, 4, 2])
    ((Range(begin=0, end=7), Range(begin=0, end=1)), (Range(begin=0, end=7), Range(begin=0, end=4)))
    """
    rows, columns, *_ = (*shape, 1, 1)
    return Range(0, rows), Range(0, columns)


@dataclass(frozen=True)
class ArrayPart:
    """Some rows and columns of a variable, and all of whatever axes follow."""

    variable: str
    """Name of the variable."""
    values: Array
    """What stands in these rows and columns."""
    shape: tuple[int, ...]
    """Shape of the whole variable."""
    table: str | None = None
    """The embedding table that it is, or is a slot of."""
    first_row: int = 0
    first_column: int = 0

    @property
    def rows(self) -> Range:
        """The rows of the variable that this part has."""
        return Range(self.first_row, self.first_row + extents(self.values.shape)[0].end)

    @property
    def columns(self) -> Range:
        """The columns of the variable that this part has."""
        return Range(self.first_column, self.first_column + extents(self.values.shape)[1].end)


def whole(
    arrays: Mapping[str, Any], tables: Mapping[str, str | None] | None = None
) -> Iterator[ArrayPart]:
    """Make each array one part: all rows, all columns.

    Args:
        arrays: variable -> its values, or what gives them by ``numpy()`` when it is its turn.
        tables: variable -> its table, of those that have one.
    """
    for name, array in arrays.items():
        values = array.numpy() if hasattr(array, "numpy") else np.asarray(array)
        yield ArrayPart(name, values, values.shape, (tables or {}).get(name))
        del values  # before the next one is there
