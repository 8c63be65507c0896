"""``merlin-sim preprocess``: raw logs become a dataset directory."""

from __future__ import annotations

import click

from .amazon_books import amazon_books
from .criteo import criteo
from .log import log

# The modules that import Merlin are imported by the functions that need them: help is quick.


@click.group()
def command() -> None:
    """Turn raw logs of behaviour or clicks into a dataset directory."""


for kind in (amazon_books, log, criteo):
    command.add_command(kind)
