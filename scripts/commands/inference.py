"""``merlin-sim inference``: score the test data, or measure how fast that goes."""

from __future__ import annotations

from typing import Any

import click

from ..options.run_options import execute, run_options


@click.command()
@run_options("inference")
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Score the test data with a checkpoint's weights, or measure throughput (--benchmark)."""
    execute(ctx, values)
