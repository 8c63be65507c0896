"""``merlin-sim inference``: score the test data, or measure how fast that goes."""

from __future__ import annotations

from typing import Any

import click

from ..options.run_options import execute, run_options
from ..options.short_help import ShortHelp

COMMON = (
    "dataset_dir", "model_type", "load_checkpoint_path", "step", "config", "global_batch_size",
    "candidates", "amp", "xla", "results_dir", "save_scores", "benchmark", "benchmark_steps",
)  # fmt: skip


@click.command(cls=ShortHelp, common=COMMON)
@run_options("inference")
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Score the test data with a checkpoint's weights, or measure throughput (--benchmark)."""
    execute(ctx, values)
