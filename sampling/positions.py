"""Which interactions of a history are samples: positions in it, as a range for each history."""

from __future__ import annotations

from typing import Any

TRAIN = "train"
TEST = "test"


def sample_positions(lengths: Any, mapping: str, least_before: int, xp: Any) -> tuple[Any, Any]:
    """Say of each history from which position to which other one its samples are.

    The last interaction is the test's, all before it are for training.

    >>> import numpy as np
    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1, 0]), "train", 1, np)]
    [[1, 0, 0], [3, 0, 0]]
    >>> [ends.tolist() for ends in sample_positions(np.array([4, 1, 0]), "test", 1, np)]
    [[3, 0, 0], [4, 1, 0]]

    Args:
        lengths: [histories] How many interactions each history has.
        mapping: ``"train"`` or ``"test"``.
        least_before: Interactions that a sample of ``"train"`` has before it at least.
        xp: numpy or cupy.

    Returns:
        [histories] the first position, and the one after the last; equal where there is none.
    """
    last = xp.maximum(lengths - 1, 0)
    if mapping == TEST:
        return last, lengths
    return xp.minimum(max(least_before, 0), last), last
