"""``merlin-sim train``: train a model on a dataset directory."""

from __future__ import annotations

from typing import Any

import click

from ..options.run_options import execute, run_options


@click.command()
@run_options("train")
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Train a model on a dataset directory and evaluate it after each epoch.

    Alone, or on several ranks: `horovodrun -np 2 merlin-sim train ...`. Ctrl-C and SIGTERM end
    the run after the step, save, and exit with 75.
    """
    execute(ctx, values)
