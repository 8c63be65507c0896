"""Memory of numpy becomes tensors, without a copy where that can be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

ALIGNED = 64
"""Bytes: where TensorFlow wants memory to begin."""


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Make an empty array that TensorFlow takes over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    block = np.empty(size + ALIGNED, np.uint8)
    start = -block.ctypes.data % ALIGNED
    return block[start : start + size].view(dtype).reshape(shape)


def to_tensor(array: Any) -> tf.Tensor:
    """Hand memory over without a copy, if it is as TensorFlow wants it; leave a tensor alone."""
    if isinstance(array, tf.Tensor):
        return array
    address, is_read_only = array.__array_interface__["data"]
    is_simple = array.dtype.kind in "iuf" and array.flags.c_contiguous and array.size
    if is_simple and not is_read_only and address % ALIGNED == 0:
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tf.convert_to_tensor(array)
