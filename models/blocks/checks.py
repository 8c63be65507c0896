"""Checks of options that several blocks share, with messages for the person who set them."""

from __future__ import annotations

from collections.abc import Sequence

from ...foundation.exceptions import MerlinSimError

ATTENTIONS = ("dot", "activation_unit")
"""How DIN's attention may score a position; known without TensorFlow."""


class OptionError(MerlinSimError, ValueError):
    """An option of a block or a model has a value it cannot have."""


def check_positive(option: str, value: int) -> int:
    """Return ``value`` if it is a whole number of at least 1.

    >>> check_positive("top_k", 0)
    Traceback (most recent call last):
    ...
    merlin_sim.models.blocks.checks.OptionError: `top_k` should be a positive integer. \
Received: `top_k` = 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(
            f"`{option}` should be a positive integer. Received: `{option}` = {value!r}."
        )
    return value


def check_length(option: str, length: int) -> int:
    """Return ``length`` if it is a whole number of at least 0.

    >>> check_length("short_length", 0)
    0
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise OptionError(
            f"`{option}` should be an integer of at least 0. Received: `{option}` = {length!r}."
        )
    return length


def check_dims(option: str, value: Sequence[int], at_least: int = 0) -> tuple[int, ...]:
    """Return ``value`` as a tuple if it is a list of layer sizes.

    >>> check_dims("aux_mlp_dims", [100, 50])
    (100, 50)
    """
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    sizes = tuple(value) if is_list else ()
    well_formed = all(isinstance(s, int) and not isinstance(s, bool) and s > 0 for s in sizes)
    if not is_list or not well_formed or len(sizes) < at_least:
        fewest = f" ({at_least} or more)" if at_least else ""
        raise OptionError(
            f"`{option}` should be a list of positive integers{fewest}. "
            f"Received: `{option}` = {value!r}."
        )
    return sizes


def check_rate(option: str, value: float | None) -> float | None:
    """Return ``value`` if it is None (off) or at least 0 and below 1.

    >>> check_rate("dropout_rate", None) is None
    True
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise OptionError(
            f"`{option}` should be at least 0 and below 1, or None for off. "
            f"Received: `{option}` = {value!r}."
        )
    return float(value)


def check_switch(option: str, value: bool) -> bool:
    """Return ``value`` if it is true or false.

    >>> check_switch("stage_one", True)
    True
    """
    if not isinstance(value, bool):
        raise OptionError(f"`{option}` should be true or false. Received: `{option}` = {value!r}.")
    return value


def check_choice(option: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    >>> check_choice("attention", "dot", ("dot", "activation_unit"))
    'dot'
    """
    if value not in choices:
        named = " or ".join(repr(choice) for choice in choices)
        raise OptionError(f"`{option}` should be {named}. Received: `{option}` = {value!r}.")
    return value
