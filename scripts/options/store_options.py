"""The address of a store of histories, given so that no one else reads its password."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click

STORE_HELP = (
    "a file (SQLite), or a Redis server: redis://127.0.0.1:6379/0. An address with a password "
    "stands in a file or in the environment: @FILE or env:NAME."
)


class StoreAddress(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A store's address, or where that stands: ``@FILE`` or ``env:NAME``.

    >>> StoreAddress().convert("/var/histories", None, None)
    '/var/histories'
    """

    name = "STORE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it."""
        if value.startswith("@"):
            try:
                found = Path(value[1:]).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                self.fail(f"{value[1:]} cannot be read: {error}", param, ctx)
            return found or self.fail(f"{value[1:]} is empty", param, ctx)
        if value.startswith("env:"):
            found = os.environ.get(value[4:], "")
            return found or self.fail(f"{value[4:]} is not in the environment", param, ctx)
        if _has_password(value):
            self.fail(
                "a password on the command line is there for everybody to read (`ps`): write the "
                "address into a file and give @FILE, or into the environment and give env:NAME.",
                param,
                ctx,
            )
        return value


def _has_password(address: str) -> bool:
    if "://" not in address:
        return False
    try:
        parts = urlsplit(address)
        return bool(parts.password or parse_qs(parts.query).get("password"))
    except ValueError:
        return "@" in address


def store_option(text: str) -> Callable[[Any], Any]:
    """Add ``--histories``."""
    return click.option("--histories", type=StoreAddress(), help=f"{text} STORE is {STORE_HELP}")
