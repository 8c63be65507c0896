"""Checks of the GPU before a command imports Merlin, which would take it for granted."""

from __future__ import annotations

import os

import click

from ...foundation.gpus import VISIBLE, Gpus, look, why_not_cudf, why_not_merlin
from ...foundation.process_wide import hide_gpu_from_merlin
from ...foundation.ranks import local_rank


def settle_for_model(gpus: Gpus | None = None) -> None:
    """Let a command with a model use the GPU if TensorFlow and cudf can; say why they cannot."""
    _say(settle_training(look() if gpus is None else gpus))


def settle_for_tables() -> None:
    """The same for a command that trains no model, and for the workers that it starts.

    Where it makes samples of users, TensorFlow takes of the GPU's memory what these need.
    """
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    _say(settle_preprocessing(look()))


def settle_training(gpus: Gpus) -> str | None:
    """Decide what a run uses, before Merlin is imported; return what to report, None for nothing.

    Without TensorFlow's GPU all of it runs on the CPU; without cudf the feed does.
    """
    problem = why_not_merlin(gpus)
    if problem is not None:
        hide_gpu_from_merlin()
    return problem


def settle_preprocessing(gpus: Gpus) -> str | None:
    """The same for what trains nothing; workers that are started later see it too."""
    if not gpus.visible:
        return None
    reason = why_not_cudf(gpus)
    if reason is None:
        return None
    os.environ[VISIBLE] = ""
    return f"runs on the CPU: {reason}."


def _say(problem: str | None) -> None:
    if problem is not None and local_rank().rank == 0:
        click.echo(f"merlin-sim: {problem}", err=True)
