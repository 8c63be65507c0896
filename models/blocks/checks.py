"""Checks of options that several blocks share, with messages for the person who set them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...foundation.exceptions import MerlinSimError

ATTENTIONS = ("dot", "activation_unit")
"""How DIN's attention may score a position; known without TensorFlow."""


class OptionError(MerlinSimError, ValueError):
    """An option of a block or a model has a value it cannot have."""


def require(fits: bool, option: str, expected: str, value: Any) -> None:
    """Refuse an option's value, unless it fits."""
    if not fits:
        raise OptionError(f"`{option}` should {expected}. Received: `{option}` = {value!r}.")


def _is_whole(value: Any, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def check_positive(option: str, value: int) -> int:
    """Return ``value`` if it is a whole number of at least 1.

    >>> check_positive("top_k", 0)
    Traceback (most recent call last):
    ...
    merlin_sim.models.blocks.checks.OptionError: `top_k` should be a positive integer. \
Received: `top_k` = 0.
    """
    require(_is_whole(value, 1), option, "be a positive integer", value)
    return value


def check_length(option: str, length: int) -> int:
    """Return ``length`` if it is a whole number of at least 0."""
    require(_is_whole(length, 0), option, "be an integer of at least 0", length)
    return length


def check_dims(option: str, value: Sequence[int], at_least: int = 0) -> tuple[int, ...]:
    """Return ``value`` as a tuple if it is a list of layer sizes."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    sizes = tuple(value) if is_list else ()
    fits = is_list and all(_is_whole(size, 1) for size in sizes) and len(sizes) >= at_least
    fewest = f" ({at_least} or more)" if at_least else ""
    require(fits, option, f"be a list of positive integers{fewest}", value)
    return sizes


def check_rate(option: str, value: float | None) -> float | None:
    """Return ``value`` if it is None (off) or at least 0 and below 1."""
    if value is None:
        return None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
    require(fits, option, "be at least 0 and below 1, or None for off", value)
    return float(value)


def check_switch(option: str, value: bool) -> bool:
    """Return ``value`` if it is true or false."""
    require(isinstance(value, bool), option, "be true or false", value)
    return value


def check_choice(option: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    require(value in choices, option, f"be {' or '.join(map(repr, choices))}", value)
    return value
