"""A model as a SavedModel: two signatures over the schema's columns, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf
from merlin.schema import Schema

from ..models import InterestModel
from ..models.one_user import score_candidates
from ..models.serving_signature import serving_signature
from .servable import ONE_USER_SIGNATURE, PLAIN_SIGNATURE, SCORE


def save_served_model(model: InterestModel, schema: Schema, path: Path) -> None:
    """Write the SavedModel of a servable.

    It holds the forward pass and the weights: no optimizer, no objective, no Keras objects, whose
    loading would rebuild them from their configuration.

    Args:
        model: The model, built.
        schema: Its schema, histories in the form that the signatures are to take.
        path: Directory to write.
    """
    signature = serving_signature(replace(model.channels, schema=schema))

    # Nothing in a model needs autograph, whose conversion takes half of an export's time.
    @tf.function(input_signature=[signature], autograph=False)
    def plain(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {SCORE: tf.sigmoid(tf.cast(model.forward(columns).logits, tf.float32))}

    @tf.function(input_signature=[signature], autograph=False)
    def one_user(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {SCORE: tf.sigmoid(tf.cast(score_candidates(model, columns), tf.float32))}

    signatures = {
        PLAIN_SIGNATURE: plain.get_concrete_function(),
        ONE_USER_SIGNATURE: one_user.get_concrete_function(),
    }
    module = tf.Module()
    module.plain, module.one_user = plain, one_user
    # What the functions read has to be found in the module; nothing else is saved.
    read = {v.ref(): v for function in signatures.values() for v in function.variables}
    module.weights = list(read.values())
    tf.saved_model.save(module, str(path), signatures=signatures)
