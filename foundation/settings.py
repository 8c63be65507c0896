"""Dataclasses of settings: each field has its line of help and its bounds, which are checked."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .exceptions import MerlinSimError


@dataclass(frozen=True)
class Setting:
    """Help, choices and bounds of a setting, which also has a name, a type and a default."""

    help: str
    """Its line in the help of the command line."""
    choices: tuple[str, ...] = ()
    """The only values, where there is a list of them."""
    at_least: float | None = None
    """The smallest value of a number."""
    above: float | None = None
    """What a number is above."""
    at_most: float | None = None
    """The largest value of a number that has one of these bounds."""
    off: Any = None
    """What the command line takes for None, as the published one does."""
    flags: str = ""
    """How its switch is spelled where that is not ``--name/--no_name``."""


def setting(default: Any, help_text: str, **known: Any) -> Any:
    """Make a dataclass field that carries a :class:`Setting`."""
    return field(default=default, metadata={"setting": Setting(help_text, **known)})


def settings_of(cls: type) -> dict[str, tuple[Setting, Any]]:
    """Return the settings of a dataclass by name: what is known of each, and its type."""
    hints = typing.get_type_hints(cls)
    return {
        entry.name: (entry.metadata["setting"], hints[entry.name])
        for entry in fields(cls)
        if "setting" in entry.metadata
    }


def settle_paths(config: Any) -> None:
    """Make paths of the texts that stand in a dataclass's settings of paths."""
    for name, (_, hint) in settings_of(type(config)).items():
        value = getattr(config, name)
        if isinstance(value, str) and kind_of(hint) is Path:
            object.__setattr__(config, name, Path(value))


def problems_of(config: Any) -> Iterator[str]:
    """Say which settings of a dataclass are not what they should be."""
    for name, (known, hint) in settings_of(type(config)).items():
        value = getattr(config, name)
        expected = what_it_should_be(value, hint, known)
        if expected is not None:
            yield f"`{name}` should be {expected}. Received: {value!r}"


def require_settings(config: Any, more: Iterable[str] = ()) -> None:
    """Make paths of texts, and refuse settings that are not what they should be.

    Args:
        config: The dataclass.
        more: What else is wrong with it.

    Raises:
        MerlinSimError: With everything that is wrong.
    """
    settle_paths(config)
    if problems := [*problems_of(config), *more]:
        raise MerlinSimError("\n".join(problems))


def kind_of(hint: Any) -> type:
    """Return the type of a setting that may be None.

    >>> kind_of(int | None)
    <class 'int'>
    """
    (kind,) = [part for part in _kinds(hint) if part is not types.NoneType]
    return typing.cast(type, kind)


def what_it_should_be(value: Any, hint: Any, known: Setting) -> str | None:
    """Say what a value should be; None where it is right.

    >>> what_it_should_be(0, int, Setting("Epochs.", at_least=1))
    'a positive integer'
    """
    optional = types.NoneType in _kinds(hint)
    if value is None and optional:
        return None
    kind = kind_of(hint)
    if not _is_of(value, kind):
        return kind.__name__
    if known.choices:
        return None if value in known.choices else "one of " + ", ".join(known.choices)
    if known.above is not None:
        is_right, expected = known.above < value < math.inf, "positive"
    elif known.at_least is not None:
        is_right = known.at_least <= value < math.inf
        is_count = kind is int and known.at_least == 1
        expected = "a positive integer" if is_count else f"{known.at_least} or more"
    else:
        return None
    if known.at_most is not None:
        is_right = is_right and value <= known.at_most
        expected = f"{expected}, at most {known.at_most}"
    return None if is_right else f"{expected}, or not given" if optional else expected


def shown_value(value: Any) -> str:
    """Write an option's value as a person would.

    >>> shown_value(True), shown_value([8, 4]), shown_value(None)
    ('true', '8,4', 'none')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(shown_value, value))
    return "none" if value is None else str(value)


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _is_of(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
