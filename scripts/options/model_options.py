"""The options of the models, made of the options classes of all families."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import yaml

from ...foundation.exceptions import MerlinSimError
from ...foundation.settings import kind_of
from ...models.family import Family
from ...models.known_families import DEFAULT, families


class Dims(click.ParamType[tuple[int, ...]]):
    """Sizes of hidden layers, ``200,80``; a list in a config file."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Read the sizes; an empty text is no hidden layer."""
        parts = value if isinstance(value, list | tuple) else str(value).split(",")
        try:
            return tuple(int(part) for part in parts if str(part).strip())
        except ValueError:
            self.fail(f"{value!r} should be integers with commas between, as 200,80", param, ctx)


def model_options(off: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
    """Return an option of the command line for each option of a registered family.

    ``off`` has what is given in place of None.
    """
    found: dict[str, Callable[[Any], Any]] = {}
    # The default family's first: it has most of them.
    ordered = sorted(families().values(), key=lambda family: family.name != DEFAULT)
    for family in ordered:
        types_of = typing.get_type_hints(family.options)
        for entry in dataclasses.fields(family.options):
            if entry.name not in found:
                default = _default(entry.name, ordered, off)
                kind = _kind(types_of[entry.name])
                found[entry.name] = option(entry.name, kind, default, family.help[entry.name])
    return found


def _default(name: str, ordered: Sequence[Family], off: Mapping[str, Any]) -> str:
    """Describe an option's default: the first family's that has it, then those that differ."""
    if name in off:
        return f"{off[name]}: off"
    of_families: dict[str, list[str]] = {}
    for family in ordered:
        for entry in dataclasses.fields(family.options):
            if entry.name == name:
                of_families.setdefault(shown(entry.default), []).append(family.name)
    first, *others = of_families
    return "; ".join([first, *(f"{value} for {', '.join(of_families[value])}" for value in others)])


def option(name: str, kind: Any, default: str, help_text: str) -> Callable[[Any], Any]:
    """Make an option without a click default.

    The model has its own, and an option that it lacks is refused if it is given.
    """
    text = f"{help_text} [default: {default}]"
    return click.option(f"--{name}", type=kind, default=None, help=text)


def shown(default: Any) -> str:
    """Write a default as it would be given.

    >>> shown((200, 80)), shown(None), shown(16)
    ('200,80', 'none', '16')
    """
    if default is None:
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def parse_own(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` options of a family of one's own; values are YAML.

    >>> parse_own(("units=8", "layers=[4, 2]"))
    {'units': 8, 'layers': [4, 2]}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise MerlinSimError(f"`model_option` should be NAME=VALUE. Received: {pair!r}")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise MerlinSimError(f"`model_option` {name}: {value!r} is no YAML value.") from error
    return found


def _kind(hint: Any) -> Any:
    kind = kind_of(hint)
    return Dims() if typing.get_origin(kind) is tuple else kind
