"""What a command says of the GPU before it imports Merlin, which would take it for granted."""

from __future__ import annotations

import click

from ...foundation.gpu_use import settle_preprocessing, settle_training
from ...foundation.gpus import Gpus, look
from ...foundation.ranks import local_rank


def settle_for_model(gpus: Gpus | None = None) -> None:
    """Let a command with a model use the GPU if TensorFlow and cudf can; say why they cannot."""
    _say(settle_training(look() if gpus is None else gpus))


def settle_for_tables() -> None:
    """The same for a command that makes no tensors, and for the workers that it starts."""
    _say(settle_preprocessing(look()))


def _say(told: str | None) -> None:
    if told is not None and local_rank().rank == 0:
        click.echo(f"merlin-sim: {told}", err=True)
