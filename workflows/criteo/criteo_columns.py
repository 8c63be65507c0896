"""The columns of Criteo's logs, what becomes of their values, and how often a key must be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError

NUMBERS, KEYS = 13, 26
FIELDS = 1 + NUMBERS + KEYS
"""What a line has: the label, whole numbers, and keys in hexadecimal digits."""
LABEL_COLUMN = "label"
NUMBER_COLUMNS = tuple(f"num_{index}" for index in range(NUMBERS))
KEY_COLUMNS = tuple(f"cat_{index}" for index in range(KEYS))
COLUMNS = (LABEL_COLUMN, *KEY_COLUMNS, *NUMBER_COLUMNS)
MISSING_KEY = -1
"""What the parser has for a key that is not there."""
ADDED = 3
LEAST_NUMBER = 1 - ADDED
"""The least x for which log(x + 3) is a number that can be trained on; it becomes 0."""
LOGARITHMS = f"log(x + {ADDED})"
"""What a servable's manifest calls the rule."""


def field_name(field: int) -> str:
    """Name a field of a line, from 0.

    >>> field_name(0), field_name(13), field_name(14)
    ('label', 'num_12', 'cat_0')
    """
    return (LABEL_COLUMN, *NUMBER_COLUMNS, *KEY_COLUMNS)[field]


def model_number(number: float | None) -> float:
    """Do for one number what the workflow does for a column.

    >>> model_number(-2), model_number(None), f"{model_number(0):.4f}"
    (0.0, 0.0, '1.0986')
    """
    if number is None:
        return 0.0
    return float(np.log(np.float32(number) + np.float32(ADDED)))


def key_texts(keys: npt.NDArray[Any]) -> pa.Array:
    """Write keys as the log has them: 8 hexadecimal digits.

    >>> key_texts(np.array([10, 0x68FD1E64], np.uint32)).to_pylist()
    ['0000000a', '68fd1e64']
    """
    digits = keys.astype(">u4").tobytes().hex().encode()
    offsets = np.arange(0, 8 * len(keys) + 1, 8)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.large_string(), len(keys), buffers).cast(pa.string())


def parse_thresholds(text: str) -> tuple[int, ...]:
    """Read limits: the default, then ``column:limit`` with the columns of keys counted from 0.

    >>> limits = parse_thresholds("15,3:20")
    >>> limits[0], limits[3], len(limits)
    (15, 20, 26)
    """
    default, *others = text.split(",")
    pairs = [pair.partition(":") for pair in others]
    known = {str(column) for column in range(KEYS)}
    numbers = [default.strip(), *(limit.strip() for *_, limit in pairs)]
    if not all(map(str.isdecimal, numbers)) or any(pair[0].strip() not in known for pair in pairs):
        raise MerlinSimError(
            "`frequency_threshold` should be a limit, and limits of columns behind it: 15,3:20, "
            f"where 3 is {KEY_COLUMNS[3]} and columns run from 0 to {KEYS - 1}. "
            f"Received: `frequency_threshold` = {text!r}."
        )
    limits = [int(default)] * KEYS
    for column, _, limit in pairs:
        limits[int(column)] = int(limit)
    return tuple(limits)
