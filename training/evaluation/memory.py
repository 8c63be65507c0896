"""The most memory that a run held: of its first rank, on the machine and on the GPU."""

from __future__ import annotations

import resource
import sys

import tensorflow as tf

GIB = 2**30


def peak_memory() -> dict[str, float]:
    """Return the peaks of this process so far, in GiB, under the names they have in a log.

    ``peak_gpu_memory_gib`` is what TensorFlow's tensors took of the GPU at once; without a GPU
    there is none.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    used = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks = {"peak_memory_gib": used / GIB}
    for gpu in tf.config.list_logical_devices("GPU")[:1]:
        place = gpu.name.removeprefix("/device:")
        peak = tf.config.experimental.get_memory_info(place)["peak"]
        peaks["peak_gpu_memory_gib"] = peak / GIB
    return peaks
