"""Options of the command line, made of the settings of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from ...foundation.settings import kind_of, settings_of
from .shared_options import with_options


def setting_options(cls: type, names: Iterable[str]) -> list[Callable[[Any], Any]]:
    """Make the options of some settings, with their defaults and lines of help."""
    defaults = {entry.name: entry.default for entry in dataclasses.fields(cls)}
    return [setting_option(cls, name, defaults[name]) for name in names]


def setting_option(cls: type, name: str, default: Any) -> Callable[[Any], Any]:
    """Make the option of a setting, with a default of its own."""
    known, hint = settings_of(cls)[name]
    kind: Any = kind_of(hint)
    if kind is bool:
        flags = known.flags or f"--{name}/--no_{name}"
        return click.option(flags, name, is_flag=True, default=default, help=known.help)
    if default is dataclasses.MISSING:
        return click.option(f"--{name}", type=str, required=True, help=known.help)
    kind = str if kind is Path else click.Choice(known.choices) if known.choices else kind
    shown = known.off if default is None else str(default) if kind is str else default
    return click.option(f"--{name}", type=kind, default=shown, show_default=True, help=known.help)


def options_of(cls: type, into: str) -> Callable[[Any], Any]:
    """Add an option for each setting of a dataclass; the command gets one of these as ``into``."""
    names = list(settings_of(cls))

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def with_settings(**values: Any) -> Any:
            own = {name: values.pop(name) for name in names}
            return function(**{into: cls(**own)}, **values)

        return with_options(*setting_options(cls, names))(with_settings)

    return decorate
