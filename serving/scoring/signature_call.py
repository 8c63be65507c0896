"""One call of a signature of a SavedModel: arrays in, an array out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..servables.served_columns import Tensors


def call_signature(signature: Any, tensors: Tensors, output: str) -> npt.NDArray[np.float32]:
    """Call a signature, and return one of its outputs.

    Args:
        signature: Of a loaded SavedModel.
        tensors: Its inputs by name.
        output: The output's name.
    """
    with tf.device("CPU:0"):  # where a tensor has no place, TensorFlow takes 12 us to find one
        inputs = {name: tf.constant(value) for name, value in tensors.items()}
    outputs = signature(**inputs)
    found: npt.NDArray[np.float32] = outputs[output].numpy()  # a copy
    if sys.version_info >= (3, 11):
        for tensor in (*inputs.values(), *outputs.values()):
            # TensorFlow forgets to: 48 bytes each, for ever (its issue 62551). A busy server lost
            # more than 10 GB a day.
            del tensor.__dict__
    return found
