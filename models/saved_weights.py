"""A model's weights out of a checkpoint, each by its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..checkpoints.checkpoint_files import MANIFEST, Checkpoint, CheckpointError
from ..checkpoints.checkpoint_store import CheckpointStore
from ..checkpoints.choice import choose_checkpoint
from .blocks.embeddings.spread_tables import TablePart
from .variable_names import counted_names, named_parts, named_variables

MODEL_VARIABLES = "model_variables"
"""The fact of a checkpoint that lists which of its arrays are the model's."""
MODEL_CLASS = "model_class"
"""The fact that names the class of the model."""
MOST_LISTED = 10


def is_checkpoint(path: Path | str) -> bool:
    """Tell whether a path is a run's directory of checkpoints, or one of them."""
    place = Path(path)
    return (place / MANIFEST).is_file() or bool(CheckpointStore(place).names())


def model_from_checkpoint(path: Path | str, model_class: type[Any]) -> Any:
    """Build the model of a checkpoint with its weights, in the precision it was trained in.

    Args:
        path: a run's directory of checkpoints, of which the best is taken, or one of them: see
            :func:`~merlin_sim.checkpoints.choice.choose_checkpoint`.
        model_class: what it must be a model of.

    Raises:
        CheckpointError: where there is none, or it is of another class.
    """
    return restored_model(choose_checkpoint(Path(path)), model_class)


def restored_model(checkpoint: Checkpoint, model_class: type[Any]) -> Any:
    """Build the model of a checkpoint that was read; see :func:`model_from_checkpoint`."""
    found, wanted = checkpoint.facts.get(MODEL_CLASS), model_class.__name__
    if found != wanted:
        raise CheckpointError(f"{checkpoint.path} should be of a {wanted}. Received: {found}")
    model = model_class.from_config(checkpoint.facts["model_config"])
    restore_weights(model, checkpoint)
    return model


def restore_weights(model: tf.Module, checkpoint: Checkpoint) -> None:
    """Give a model the weights of a checkpoint.

    Raises:
        CheckpointError: naming what one of them has and the other has not.
    """
    listed = set(checkpoint.facts.get(MODEL_VARIABLES) or ())
    variables = without_older(model, named_variables(model), checkpoint)
    assign_arrays(variables, checkpoint, listed, named_parts(model))


def without_older(
    model: tf.Module, variables: Mapping[str, tf.Variable], checkpoint: Checkpoint
) -> dict[str, tf.Variable]:
    """Leave out the counted variables of a model that a checkpoint of an earlier version lacks."""
    lacking = counted_names(model) - set(checkpoint.arrays.index)
    return {name: variable for name, variable in variables.items() if name not in lacking}


def assign_arrays(
    variables: Mapping[str, tf.Variable],
    checkpoint: Checkpoint,
    expected: set[str],
    parts: Mapping[str, TablePart] | None = None,
) -> None:
    """Give variables the arrays of their names.

    Args:
        variables: name -> variable.
        checkpoint: what was read.
        expected: arrays of the checkpoint that must all find their variable.
        parts: name -> of what a variable is a part, which is all that is read of it.

    Raises:
        CheckpointError: naming every array without variable and variable without array; nothing
            is assigned.
    """
    index = checkpoint.arrays.index
    parts = parts or {}
    shapes = {name: _whole_shape(variable, parts.get(name)) for name, variable in variables.items()}
    problems = [f"{name} {shapes[name]} is not in it" for name in variables if name not in index]
    problems += [
        f"{name} {list(index[name].shape)} is in it, and the model has no such variable"
        for name in index
        if name in expected and name not in variables
    ]
    problems += [
        f"{name} should have the shape {shapes[name]}. Received: {list(index[name].shape)}"
        for name in variables
        if name in index and list(index[name].shape) != shapes[name]
    ]
    if problems:
        more = [f"and {len(problems) - MOST_LISTED} more"] if len(problems) > MOST_LISTED else []
        lines = "\n".join(f"  {problem}" for problem in [*problems[:MOST_LISTED], *more])
        raise CheckpointError(f"{checkpoint.path} is of another model:\n{lines}")
    for name, variable in variables.items():
        with tf.device(variable.device):  # it may be the only one that has room
            variable.assign(_read(checkpoint, name, variable, parts.get(name)))


def _read(checkpoint: Checkpoint, name: str, variable: Any, part: TablePart | None) -> Any:
    if part is None:
        return checkpoint.arrays[name]
    rows, columns = part.places(variable.shape)
    return checkpoint.arrays.read(name, rows, columns)


def _whole_shape(variable: Any, part: TablePart | None) -> list[int]:
    return list(variable.shape if part is None else part.whole_shape(variable.shape))
