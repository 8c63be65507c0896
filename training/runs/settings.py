"""One setting of a run: its default, what is right for it, and its line of help.

Types come from the annotations of ``RunConfig``, read here in 35 lines and not by pydantic: its
version 2 needs typing-extensions 4.6, which TensorFlow 2.12 refuses. Its version 1 resolves, adds
0.05 s of processor time to each start of the command line (measured: 0.08 s beside 0.02 s of bare
Python), and would save little: a number in quotes is not a number here, so its conversions would
have to be turned off type by type; every message, choice and flag of the command line would still
come from :class:`Setting`.
"""

from __future__ import annotations

import math
import types
import typing
from dataclasses import Field, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Setting:
    """What is known of a setting beside its name, its type and its default."""

    help: str
    """Its line in the help of the command line."""
    choices: tuple[str, ...] = ()
    """The only values, where there is a list of them."""
    at_least: float | None = None
    """The smallest value of a number."""
    above: float | None = None
    """What a number is above."""
    off: Any = None
    """What the command line takes for None, as the published one does."""
    flags: str = ""
    """How its switch is spelled where that is not ``--name/--no_name``."""


def setting(default: Any, help_text: str, **known: Any) -> Any:
    """Make a dataclass field that carries a :class:`Setting`."""
    return field(default=default, metadata={"setting": Setting(help_text, **known)})


def setting_of(entry: Field[Any]) -> Setting | None:
    """Return what a field carries; None for one that is not a setting."""
    found: Setting | None = entry.metadata.get("setting")
    return found


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
        is_right, wanted = known.above < value < math.inf, "positive"
    elif known.at_least is not None:
        is_right = known.at_least <= value < math.inf
        wanted = "a positive integer" if known.at_least == 1 else f"{known.at_least} or more"
    else:
        return None
    return None if is_right else f"{wanted}, or not given" if optional else wanted


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) or (hint,)


def _is_of(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
