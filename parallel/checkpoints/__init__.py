"""Checkpoints on disk: arrays by name, in parts that any number of ranks may write and read."""

import re

BEST, NEWEST = "best", "newest"
WANTED = f"{BEST}, {NEWEST} or the number of a step"
"""What may be asked for."""


def is_choice(step: str) -> bool:
    """Return whether a text asks for a checkpoint.

    >>> is_choice("best"), is_choice("120"), is_choice("last")
    (True, True, False)
    """
    return step in (BEST, NEWEST) or re.fullmatch(r"\d{1,10}", step) is not None
