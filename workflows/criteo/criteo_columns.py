"""The columns of Criteo's logs, and of the datasets made of them."""

from __future__ import annotations

NUMBERS, KEYS = 13, 26
FIELDS = 1 + NUMBERS + KEYS
"""What a line has: the label, whole numbers, and keys in hexadecimal digits."""
LABEL_COLUMN = "label"
NUMBER_COLUMNS = tuple(f"num_{place}" for place in range(NUMBERS))
KEY_COLUMNS = tuple(f"cat_{place}" for place in range(KEYS))
COLUMNS = (LABEL_COLUMN, *KEY_COLUMNS, *NUMBER_COLUMNS)
MISSING_KEY = -1
"""What stands for a key that is not there, until it has an id."""
LEAST_NUMBER = -2
"""The least x for which log(x + 3) is a number that can be trained on."""


def field_name(field: int) -> str:
    """Name a field of a line, from 0.

    >>> field_name(0), field_name(13), field_name(14)
    ('label', 'num_12', 'cat_0')
    """
    return (LABEL_COLUMN, *NUMBER_COLUMNS, *KEY_COLUMNS)[field]
