"""``merlin-sim train``: train a model on a dataset directory."""

from __future__ import annotations

from typing import Any

import click

from ..options.run_options import execute, run_options
from ..options.short_help import ShortHelp

COMMON = (
    "dataset_dir", "model_type", "preset", "config", "optimizer", "lr", "epochs",
    "global_batch_size", "early_stopping", "amp", "xla", "callback", "metric", "results_dir",
    "save_checkpoint_path", "load_checkpoint_path", "seed",
)  # fmt: skip


@click.command(cls=ShortHelp, common=COMMON)
@run_options("train")
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Train a model on a dataset directory and evaluate it after each epoch.

    Alone, or on several ranks: `horovodrun -np 2 merlin-sim train ...`. Ctrl-C and SIGTERM end
    the run after the step, save, and exit with 75.
    """
    execute(ctx, values)
