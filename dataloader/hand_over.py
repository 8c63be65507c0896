"""Memory of numpy or cupy becomes tensors, without a copy where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def to_tensor(array: Any) -> tf.Tensor:
    """Hand memory over without a copy, if it is as TensorFlow wants it."""
    address, is_read_only = array.__array_interface__["data"]
    is_simple = array.dtype.kind in "iuf" and array.flags.c_contiguous and array.size
    if is_simple and not is_read_only and address % 64 == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)


def device_tensor(array: Any) -> tf.Tensor:
    """The same for memory of the GPU."""
    if not array.size:
        return tf.zeros(array.shape, tf.as_dtype(array.dtype))
    if array.dtype == np.bool_:  # of which TensorFlow takes no memory over
        return tf.cast(device_tensor(array.astype(np.int8)), tf.bool)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def can_be_handed_over(inputs: Any, targets: Any) -> bool:
    """Whether all columns of a batch are such memory; TensorFlow's own tensors are."""
    columns = [getattr(value, "values", value) for value in inputs.values()]
    labels = targets.values() if isinstance(targets, dict) else [targets]
    arrays = [*columns, *(label for label in labels if label is not None)]
    return all(hasattr(array, "__dlpack__") for array in arrays)
