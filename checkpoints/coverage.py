"""Whether parts make up a whole: every place in one of them, none in two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .array_part import Range

Area = tuple[Range, Range]
"""Rows and columns."""


def find_fault(whole: Area, parts: Sequence[Area]) -> str | None:
    """Say which rows and columns stand in no part, or in several, or lie outside; None for none.

    >>> rows, columns = Range(0, 10), Range(0, 4)
    >>> find_fault((rows, columns), [(Range(0, 6), columns), (Range(6, 10), columns)])
    >>> find_fault((rows, columns), [(Range(0, 6), columns), (Range(7, 10), columns)])
    'rows 6 to 7, columns 0 to 4 stand in no part'
    >>> find_fault((rows, columns), [(Range(0, 6), columns), (Range(5, 10), columns)])
    'rows 5 to 6, columns 0 to 4 stand in 2 parts'

    Args:
        whole: what there should be.
        parts: what there is.
    """
    for part in parts:
        for asked, there in zip(part, whole, strict=True):
            if not there.begin <= asked.begin <= asked.end <= there.end:
                return f"a part has the places {asked.begin} to {asked.end} of {there.end}"
    # Between two neighbouring cuts all places are alike: count the parts of each such piece.
    rows, columns = ([*whole[axis], *(c for p in parts for c in p[axis])] for axis in (0, 1))
    row_cuts, column_cuts = np.unique(rows), np.unique(columns)
    counts = np.zeros((len(row_cuts) - 1, len(column_cuts) - 1), np.int64)
    for part in parts:
        first = (np.searchsorted(row_cuts, part[0]), np.searchsorted(column_cuts, part[1]))
        counts[slice(*first[0]), slice(*first[1])] += 1
    wrong = np.argwhere(counts != 1)
    if not len(wrong):
        return None
    row, column = wrong[0]
    number = int(counts[row, column])
    found = f"{number} parts" if number else "no part"
    return (
        f"rows {row_cuts[row]} to {row_cuts[row + 1]}, columns {column_cuts[column]} to "
        f"{column_cuts[column + 1]} stand in {found}"
    )
