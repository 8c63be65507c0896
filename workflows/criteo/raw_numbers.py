"""A number of a click log as the model reads it, one at a time."""

from __future__ import annotations

import numpy as np

LOGARITHMS = "log(x + 3)"
"""What a servable's manifest calls the rule."""


def model_number(number: float | None) -> float:
    """Do for one number what :class:`~..operators.log_numbers.LogNumbers` does for a column.

    >>> model_number(-2), model_number(None), f"{model_number(0):.4f}"
    (0.0, 0.0, '1.0986')
    """
    if number is None:
        return 0.0
    return float(np.log(np.float32(number) + np.float32(3)))
