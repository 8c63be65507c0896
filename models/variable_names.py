"""The names under which a model's variables are kept: where each stands in the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from merlin.models.tf.inputs.embedding import EmbeddingTable

from .blocks.embeddings.spread_tables import TablePart, table_parts

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
            they are the flags and counters of whoever made the class. Those that the model lists
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


def counted_names(model: tf.Module) -> set[str]:
    """Name the variables that are counted in the training data: the ``counted_variables``.

    Checkpoints of earlier versions lack them, and a run counts them again before it trains.
    """
    counted = {_identity(variable) for variable in _counted(model)}
    return {name for name, v in named_variables(model).items() if _identity(v) in counted}


def _counted(model: tf.Module) -> tuple[tf.Variable, ...]:
    return tuple(getattr(model, "counted_variables", ()))


def table_names(model: tf.Module) -> dict[str, str]:
    """Say which variables are embedding tables: the variable's name -> its table's name."""
    tables = {
        _identity(block.table.embeddings): str(block.name)
        for block in _blocks(model)
        if isinstance(block, EmbeddingTable)
    }
    return {
        name: tables[_identity(variable)]
        for name, variable in named_variables(model).items()
        if _identity(variable) in tables
    }


def _blocks(model: tf.Module) -> Iterator[tf.Module]:
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
    return id(
        getattr(variable, "_variable", variable)
    )  # within Keras's variable of mixed precision
