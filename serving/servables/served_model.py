"""A model as a SavedModel: two signatures over the schema's columns, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from merlin.schema import Schema

from ...foundation.atomic_write import TOO_LITTLE_SPACE, cannot_be_written
from ...foundation.batch_names import OFFSETS, VALUES
from ...foundation.process_wide import quiet_save
from ...models.row_parts import in_parts
from ...models.saving import Signature, columns_signature
from ...schemas.channels import (
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    channels_of,
)
from .servable import (
    ITEM_VECTOR_SIGNATURE,
    ONE_USER_SIGNATURE,
    PLAIN_SIGNATURE,
    SCORE,
    USER_VECTOR_SIGNATURE,
    VECTOR,
)


@contextmanager
def explained_disk_errors(output: Path) -> Iterator[None]:
    """Say of a full disk what is free on it, whether Python or TensorFlow met it.

    Args:
        output: What is written in the block.

    Raises:
        MerlinSimError: Where there is no space; other errors are left as they are.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        refused = error if isinstance(error, OSError) else _system_error(error)
        if refused is None or refused.errno not in TOO_LITTLE_SPACE:
            raise
        raise cannot_be_written(output, refused) from refused


def _system_error(error: tf.errors.OpError) -> OSError | None:
    """The system's error behind one of TensorFlow's, which has its text but not its number."""
    text = str(error)
    found = (number for number in TOO_LITTLE_SPACE if os.strerror(number) in text)
    return next((OSError(number, os.strerror(number)) for number in found), None)


def save_served_model(
    model: Any, schema: Schema, path: Path, takes_rows: bool, has_vectors: bool = False
) -> None:
    """Write the SavedModel of a servable.

    It holds the forward pass and the weights: no optimizer, no objective, no Keras objects, whose
    loading would rebuild them from their configuration.

    Args:
        model: The model, built.
        schema: The columns that it serves from, histories in the form that the signatures are to
            take.
        path: Directory to write.
        takes_rows: Whether requests are plain rows: there is no signature for one user then.
        has_vectors: Whether it gives vectors of users and of items: each has a signature then.
    """
    signature = columns_signature(schema)
    of_target = (TARGET_ITEM_FEATURES, TARGET_ITEM_LISTS, TARGET_ITEM_NUMERICAL)
    channels = channels_of(schema)
    targets = [name for channel in of_target for name in channels.get(channel, ())]

    def score(columns: dict[str, Any]) -> tf.Tensor:
        return tf.cast(model.forward(columns).logits, tf.float32)

    def score_beside(user: dict[str, Any], candidates: dict[str, Any]) -> tf.Tensor:
        return score({**user, **{name: ids[tf.newaxis] for name, ids in candidates.items()}})

    # Nothing in a model needs autograph, whose conversion takes half of an export's time.
    @tf.function(input_signature=[signature], autograph=False)
    def plain(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {SCORE: tf.sigmoid(score(columns))}

    @tf.function(input_signature=[signature], autograph=False)
    def one_user(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        user = {n: _of_one_user(n, column) for n, column in columns.items() if n not in targets}
        candidates = {name: columns[name] for name in targets}
        logits = in_parts(lambda part: score_beside(user, part), candidates)
        return {SCORE: tf.sigmoid(logits)}

    functions = {PLAIN_SIGNATURE: plain}
    if not takes_rows:
        functions[ONE_USER_SIGNATURE] = one_user
    if has_vectors:
        functions |= _vector_functions(model, signature, targets)
    signatures = {name: f.get_concrete_function() for name, f in functions.items()}
    module = tf.Module()
    module.functions = functions
    # What the functions read has to be found in the module; nothing else is saved.
    read = {v.ref(): v for function in signatures.values() for v in function.variables}
    module.weights = list(read.values())
    with quiet_save():
        tf.saved_model.save(module, str(path), signatures=signatures)


def _vector_functions(model: Any, signature: Signature, targets: list[str]) -> dict[str, Any]:
    """Return what gives vectors of users, without any item, and of items, without any user."""
    of_users = {name: spec for name, spec in signature.items() if name not in targets}
    of_items = {name: signature[name] for name in targets}

    @tf.function(input_signature=[of_users], autograph=False)
    def users(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {VECTOR: model.forward({**columns, **_zeros(columns, of_items)}).users}

    @tf.function(input_signature=[of_items], autograph=False)
    def items(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {VECTOR: model.forward({**columns, **_zeros(columns, of_users)}).items[:, 0]}

    return {USER_VECTOR_SIGNATURE: users, ITEM_VECTOR_SIGNATURE: items}


def _zeros(columns: dict[str, Any], lacking: Signature) -> dict[str, tf.Tensor]:
    """Stand in for columns that a vector is not made of; the saved graph holds nothing of them."""
    name, column = next((n, c) for n, c in columns.items() if not n.endswith(VALUES))
    rows = tf.shape(column)[0] - (1 if name.endswith(OFFSETS) else 0)
    found = {}
    for lacked, spec in lacking.items():
        count = 0 if lacked.endswith(VALUES) else rows + (1 if lacked.endswith(OFFSETS) else 0)
        found[lacked] = tf.zeros([count, *spec.shape[1:]], spec.dtype)
    return found


def _of_one_user(name: str, column: tf.Tensor) -> tf.Tensor:
    """Tell the graph that a column has one row, so that it need not make room for more."""
    if name.endswith(VALUES):
        return column
    rows = 2 if name.endswith(OFFSETS) else 1
    return tf.ensure_shape(column, [rows, *column.shape[1:]])
