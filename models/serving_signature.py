"""The signature of a saved model: names and types as the schema has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from .blocks.left_padding import OFFSETS, VALUES
from .channels import Channels

if TYPE_CHECKING:
    from .interest_model import InterestModel

Signature = dict[str, tf.TensorSpec]


def serving_signature(channels: Channels) -> Signature:
    """Return the inputs of inference, by the names under which Merlin's loader gives them.

    A scalar column is [batch], a padded list [batch, length]; a ragged list is two inputs, its
    values and its offsets, [batch + 1].
    """
    signature: Signature = {}
    for name in channels.served:
        column = channels.schema[name]
        dtype = column.dtype.to("tensorflow")
        if not column.is_list:
            signature[name] = tf.TensorSpec([None], dtype, name)
        elif column.is_ragged:
            signature[name + VALUES] = tf.TensorSpec([None], dtype, name + VALUES)
            signature[name + OFFSETS] = tf.TensorSpec([None], tf.int32, name + OFFSETS)
        else:
            signature[name] = tf.TensorSpec([None, channels.history_length], dtype, name)
    return signature


def serving_function(model: InterestModel, signature: Signature) -> Any:
    """Return the function that a saved model serves: columns to click probabilities."""
    output_name = model.output_block.full_name

    @tf.function(input_signature=[signature])
    def serve(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {output_name: model(columns, training=False)}

    return serve


def output_schema(name: str) -> Schema:
    """Return the schema of what a saved model gives."""
    return Schema([ColumnSchema(name, dtype=np.float32, tags=[Tags.BINARY_CLASSIFICATION])])
