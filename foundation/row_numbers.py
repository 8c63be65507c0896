"""What belongs to a row, once for each element of its list: for arrays of numpy or cupy."""

from __future__ import annotations

from typing import Any

import numpy as np


def row_of_each_element(offsets: Any, xp: Any) -> Any:
    """Number the rows of ragged lists, once for each element.

    >>> row_of_each_element(np.array([0, 2, 2, 3]), np).tolist()
    [0, 0, 2]
    """
    return for_each_element(xp.arange(len(offsets) - 1, dtype=xp.int64), offsets, xp)


def for_each_element(values: Any, offsets: Any, xp: Any) -> Any:
    """Repeat each row's value as often as its list has elements.

    cupy repeats by numbers of the host only (an array of ``repeats`` is refused before version
    14.1), so there the elements count the rows that have begun.

    >>> for_each_element(np.array([7, 8, 9]), np.array([0, 2, 2, 3]), np).tolist()
    [7, 7, 9]
    """
    if xp is np:
        return np.repeat(values, offsets[1:] - offsets[:-1])
    elements = int(offsets[-1] - offsets[0])
    begun = xp.bincount(offsets - offsets[0], minlength=elements)[:elements]
    return values[xp.cumsum(begun, dtype=xp.int64) - 1]
