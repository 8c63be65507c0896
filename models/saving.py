"""Which forms of a saved model there are, what is served, and weights by their names."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from merlin.models.tf.inputs.embedding import EmbeddingTable
from merlin.schema import Schema

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.ranks import Ranks
from ..parallel.checkpoints.checkpoint_files import MANIFEST, CheckpointError, SavedCheckpoint
from ..parallel.checkpoints.checkpoint_store import CheckpointStore
from ..parallel.ranks import collectives
from .blocks.checks import OptionError
from .blocks.embeddings.sharded_tables import TablePart, table_parts

OTHER_ENDINGS = (".keras", ".h5", ".hdf5")
"""What makes Keras write one file in a form of its own, which cannot hold these models."""


def check_saved_model(path: str | Path, save_format: str | None = None) -> None:
    """Refuse a path or a format that is not that of a SavedModel."""
    if str(path).endswith(OTHER_ENDINGS) or save_format not in (None, "tf"):
        asked = f"{path}" if save_format is None else f"{path} in the format {save_format!r}"
        raise OptionError(
            "A model is saved as a TensorFlow SavedModel, a directory: its path should not end in "
            f"{', '.join(OTHER_ENDINGS)}. Received: {asked}"
        )


def check_weights_path(path: str | Path) -> None:
    """Refuse a path of weights whose ending asks for a form that cannot hold layers of one name."""
    if str(path).endswith(OTHER_ENDINGS) and not str(path).endswith(".weights.h5"):
        raise OptionError(
            "Weights are saved as a TensorFlow checkpoint: their path should not end in "
            f"{', '.join(OTHER_ENDINGS)}, unless in .weights.h5. Received: {path}"
        )


def check_callbacks(callbacks: Any) -> None:
    """Refuse at once what ``ModelCheckpoint`` could not save after the first epoch."""
    found = getattr(callbacks, "callbacks", callbacks) or ()
    for callback in found if isinstance(found, Iterable) else (found,):
        if isinstance(callback, tf.keras.callbacks.ModelCheckpoint):
            if callback.save_weights_only:
                check_weights_path(callback.filepath)
            else:
                check_saved_model(callback.filepath)


Signature = dict[str, tf.TensorSpec]


def columns_signature(schema: Schema) -> Signature:
    """Return the inputs of a function of these columns, named as Merlin's loader names them.

    A scalar column is [batch], a padded list [batch, length]; a ragged list is two inputs, its
    values and its offsets, [batch + 1].
    """
    signature: Signature = {}
    for name, column in schema.column_schemas.items():
        dtype = column.dtype.to("tensorflow")
        if not column.is_list:
            signature[name] = tf.TensorSpec([None], dtype, name)
        elif column.is_ragged:
            signature[name + VALUES] = tf.TensorSpec([None], dtype, name + VALUES)
            signature[name + OFFSETS] = tf.TensorSpec([None], tf.int32, name + OFFSETS)
        else:
            signature[name] = tf.TensorSpec([None, int(column.value_count.max)], dtype, name)
    return signature


def absent_columns(columns: Mapping[str, Any], absent: Signature) -> dict[str, tf.Tensor]:
    """Stand in for columns that an output does not depend on; a saved graph holds nothing of them.

    Args:
        columns: A batch, whose rows are counted.
        absent: The signature of what it lacks.
    """
    name, column = next((n, c) for n, c in columns.items() if not n.endswith(VALUES))
    rows = tf.shape(column)[0] - (1 if name.endswith(OFFSETS) else 0)
    found = {}
    for lacked, spec in absent.items():
        count = 0 if lacked.endswith(VALUES) else rows + (1 if lacked.endswith(OFFSETS) else 0)
        found[lacked] = tf.zeros([count, *spec.shape[1:]], spec.dtype)
    return found


def serving_function(
    model: Callable[..., tf.Tensor], signature: Signature, output_name: str
) -> Any:
    """Return the function that a saved model serves: columns to click probabilities."""

    @tf.function(input_signature=[signature], autograph=False)
    def serve(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {output_name: model(columns, training=False)}

    return serve


_KERAS_OWN = ("layer-", "layer_with_weights-", "keras_api", "_self_")
"""Second names that Keras gives by position."""


def named_variables(model: tf.Module) -> dict[str, tf.Variable]:
    """Name a model's variables by the attributes that lead to them, in the model's own order.

    A name depends on nothing but what the attributes are called: not on how many models the
    process has made, nor on the order in which layers are made.

    >>> layer = tf.keras.layers.Dense(2)
    >>> layer.build([None, 3])
    >>> list(named_variables(layer))
    ['kernel', 'bias']

    Args:
        model: it, built. Variables behind private attributes are left out unless they are trained:
            they are flags and counters of the class. Those that the model lists
            in ``counted_variables`` are kept too.
    """
    kept = {_identity(v) for v in (*model.trainable_variables, *_counted(model))}
    paths = _paths(model)
    names: dict[str, tf.Variable] = {}
    for variable in model.variables:
        path = paths.get(_identity(variable), ())
        is_private = not path or any(step.startswith("_") for step in path)
        if is_private and _identity(variable) not in kept:
            continue
        if not path:
            raise ValueError(f"no attribute of {type(model).__name__} leads to {variable.name}")
        names["/".join(path)] = variable
    return names


def average_untrained(model: tf.Module, ranks: Ranks) -> None:
    """Average what ranks have changed apart without training it, as moving statistics of a layer.

    All ranks call this, before they score or save what then is one model.
    """
    if ranks.size == 1:
        return
    trained, parts = {_identity(v) for v in model.trainable_variables}, table_parts(model)
    untrained = {
        name: variable
        for name, variable in named_variables(model).items()
        if variable.dtype.is_floating
        and _identity(variable) not in trained
        and variable.ref() not in parts
    }
    if not untrained:
        return
    # Of what is equal everywhere, as a frozen table, nothing travels and no rounding changes it.
    own = {name: zlib.crc32(v.numpy().tobytes()) for name, v in untrained.items()}
    everywhere = collectives.gather_objects(own, ranks)
    for name, variable in untrained.items():
        if any(theirs[name] != own[name] for theirs in everywhere):
            variable.assign(collectives.average(variable.read_value(), f"untrained/{name}", ranks))


def counted_names(model: tf.Module) -> set[str]:
    """Name the variables that are counted in the training data: the ``counted_variables``."""
    counted = {_identity(variable) for variable in _counted(model)}
    return {name for name, v in named_variables(model).items() if _identity(v) in counted}


def _counted(model: tf.Module) -> tuple[tf.Variable, ...]:
    return tuple(getattr(model, "counted_variables", ()))


def table_names(model: tf.Module) -> dict[str, str]:
    """Say which variables are embedding tables: the variable's name -> its table's name."""
    tables = {
        _identity(block.table.embeddings): str(block.name)
        for block in layers_within(model)
        if isinstance(block, EmbeddingTable)
    }
    return {
        name: tables[_identity(variable)]
        for name, variable in named_variables(model).items()
        if _identity(variable) in tables
    }


def layers_within(model: tf.Module) -> Iterator[tf.Module]:
    """Go through all that is within a model: Keras refuses ``submodules`` of one it compiled."""
    for layer in model.layers if isinstance(model, tf.keras.Model) else [model]:
        yield layer
        yield from layer.submodules


def named_parts(model: tf.Module) -> dict[str, TablePart]:
    """Say which variables are parts of spread tables: the variable's name -> of what."""
    parts = table_parts(model)
    if not parts:
        return {}
    named = named_variables(model)
    return {name: parts[v.ref()] for name, v in named.items() if v.ref() in parts}


def _paths(model: tf.Module) -> dict[Any, tuple[str, ...]]:
    """Find the shortest way to each variable; of ways of one length, the first by name."""
    view = tf.train.TrackableView(model)
    paths: dict[Any, tuple[str, ...]] = {}
    seen = {id(model)}
    waiting: deque[tuple[tuple[str, ...], Any]] = deque([((), model)])
    while waiting:
        path, thing = waiting.popleft()
        for name, child in sorted(view.children(thing).items()):
            if id(child) in seen or name.startswith(_KERAS_OWN):
                continue
            seen.add(id(child))
            if isinstance(child, tf.Variable):
                paths.setdefault(_identity(child), (*path, name))
            else:
                waiting.append(((*path, name), child))
    return paths


def _identity(variable: Any) -> int:
    return id(getattr(variable, "_variable", variable))  # it is within that of mixed precision


MODEL_VARIABLES = "model_variables"
"""The key of a checkpoint's metadata that lists which of its arrays are the model's."""
MODEL_CLASS = "model_class"
"""The key that names the class of the model."""
MOST_LISTED = 10


def is_checkpoint(path: Path | str) -> bool:
    """Return whether a path is a run's directory of checkpoints, or one of them."""
    directory = Path(path)
    return (directory / MANIFEST).is_file() or bool(CheckpointStore(directory).names())


def restored_model(checkpoint: SavedCheckpoint, model_class: type[Any]) -> Any:
    """Build the model of a checkpoint with its weights, in the precision it was trained in."""
    found, expected = checkpoint.metadata.get(MODEL_CLASS), model_class.__name__
    if found != expected:
        raise CheckpointError(f"{checkpoint.path} should be of a {expected}. Received: {found}")
    model = model_class.from_config(checkpoint.metadata["model_config"])
    restore_weights(model, checkpoint)
    return model


def restore_weights(model: tf.Module, checkpoint: SavedCheckpoint) -> None:
    """Give a model the weights of a checkpoint."""
    listed = set(checkpoint.metadata.get(MODEL_VARIABLES) or ())
    assign_arrays(named_variables(model), checkpoint, listed, named_parts(model))


def assign_arrays(
    variables: Mapping[str, tf.Variable],
    checkpoint: SavedCheckpoint,
    expected: set[str],
    parts: Mapping[str, TablePart],
) -> None:
    """Give variables the arrays of their names; arguments as of :func:`check_arrays`."""
    check_arrays(variables, checkpoint, expected, parts)
    for name, variable in variables.items():
        with tf.device(variable.device):  # it may be the only one that has room
            variable.assign(_read(checkpoint, name, variable, parts.get(name)))


def check_arrays(
    variables: Mapping[str, tf.Variable],
    checkpoint: SavedCheckpoint,
    expected: set[str],
    parts: Mapping[str, TablePart],
    growing: Collection[str] = (),
) -> None:
    """Refuse a checkpoint whose arrays are not those of some variables.

    Args:
        variables: name -> variable.
        checkpoint: what was read.
        expected: arrays of the checkpoint that must all find their variable.
        parts: name -> of what a variable is a part, which is all that is read of it.
        growing: variables that may have more rows than the checkpoint's.
    """
    index = checkpoint.arrays.index
    problems = []
    for name, variable in variables.items():
        part = parts.get(name)
        shape = list(variable.shape if part is None else part.whole_shape(variable.shape))
        if name not in index:
            problems.append(f"{name} {shape} is not in it")
            continue
        found = list(index[name].shape)
        grows = name in growing and found[:1] <= shape[:1] and found[1:] == shape[1:]
        if found != shape and not grows:
            fewer = " or fewer rows" if name in growing else ""
            problems.append(f"{name} should have the shape {shape}{fewer}. Received: {found}")
    problems += [
        f"{name} {list(index[name].shape)} is in it, and the model has no such variable"
        for name in index
        if name in expected and name not in variables
    ]
    if problems:
        more = [f"and {len(problems) - MOST_LISTED} more"] if len(problems) > MOST_LISTED else []
        lines = "\n".join(f"  {problem}" for problem in [*problems[:MOST_LISTED], *more])
        raise CheckpointError(f"{checkpoint.path} is of another model:\n{lines}")


def _read(checkpoint: SavedCheckpoint, name: str, variable: Any, part: TablePart | None) -> Any:
    if part is None:
        return checkpoint.arrays[name]
    rows, columns = part.ranges(variable.shape)
    return checkpoint.arrays.read(name, rows, columns)
