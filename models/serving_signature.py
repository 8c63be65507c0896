"""The signature of a saved model: names and types as the schema has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from ..foundation.batch_names import OFFSETS, VALUES

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


def serving_function(
    model: Callable[..., tf.Tensor], signature: Signature, output_name: str
) -> Any:
    """Return the function that a saved model serves: columns to click probabilities."""

    @tf.function(input_signature=[signature])
    def serve(columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {output_name: model(columns, training=False)}

    return serve


def output_schema(name: str) -> Schema:
    """Return the schema of what a saved model gives."""
    return Schema([ColumnSchema(name, dtype=np.float32, tags=[Tags.BINARY_CLASSIFICATION])])
