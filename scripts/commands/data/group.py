"""``merlin-sim data``: commands about datasets."""

from __future__ import annotations

import click

from ...options.lazy_group import LazyGroup

COMMANDS = {
    "synthesize": ("data.synthesize", "Write synthetic raw logs with planted behaviour."),
    "transcode": ("data.transcode", "Bring datasets of any form to a dataset directory."),
    "check": ("data.check", "Look through a dataset for what would spoil training."),
    "spec": ("data.spec", "Validate, show, convert and adopt dataset specifications."),
}


@click.group(cls=LazyGroup, files=COMMANDS)
def command() -> None:
    """Make, convert and check datasets; `merlin-sim preprocess` makes them of logs."""
