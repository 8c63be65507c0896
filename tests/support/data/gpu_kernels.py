"""What a device makes of operations: the same numbers, and kernels for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels

NO_WORK = ("Placeholder", "Const", "While", "StatelessWhile")


def without_gpu_kernel(graph: Any, at_least: int) -> list[tuple[str, str]]:
    """Name those whose output is as large as a batch, of ``at_least`` such operations."""
    asked, found = 0, []
    for operation in graph.get_operations():
        large = [place for place, tensor in enumerate(operation.outputs) if _is_large(tensor)]
        if not large or operation.type in NO_WORK:
            continue
        asked += 1
        if not _on_gpu(operation, large):
            found.append((operation.type, operation.name))
    assert asked >= at_least
    return found


def _is_large(tensor):
    return (
        tensor.shape.rank is not None
        and tensor.shape.rank > 0
        and (None in tensor.shape.as_list() or tensor.shape.num_elements() > 16)
    )


def _on_gpu(operation, outputs):
    """Whether some kernel takes an operation's types and leaves its outputs on the device."""
    definition = operation.op_def
    names = [argument.name for argument in definition.output_arg]
    for kernel in kernels.get_registered_kernels_for_op(operation.type).kernel:
        if kernel.device_type != "GPU":
            continue
        fits = all(
            operation.get_attr(constraint.name).as_datatype_enum
            in constraint.allowed_values.list.type
            for constraint in kernel.constraint
        )
        if fits and not {names[place] for place in outputs} & set(kernel.host_memory_arg):
            return True
    return False


def assert_compiled_alike(make: Any, given: Any) -> None:
    """Hold what a graph, and one that XLA compiles, make to what is made eagerly."""
    eager = make(given)
    for xla in (False, True):
        compiled = tf.function(make, autograph=False, jit_compile=xla)(given)
        tf.nest.map_structure(
            lambda one, other: np.testing.assert_array_equal(one.numpy(), other.numpy()),
            eager,
            compiled,
        )
