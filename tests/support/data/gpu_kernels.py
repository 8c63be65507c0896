"""What a device makes of operations: the same numbers, and kernels for all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels

from merlin_sim.foundation.gpu_forms import gpu_forms

NO_WORK = ("Placeholder", "Const", "While", "StatelessWhile", "BroadcastGradientArgs")


def without_gpu_kernel(graph: Any, at_least: int) -> list[tuple[str, str]]:
    """Name those whose output is as large as a batch, of ``at_least`` such operations."""
    asked, found = 0, []
    for operation in graph.get_operations():
        large = [number for number, tensor in enumerate(operation.outputs) if _is_large(tensor)]
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
    names = [
        argument.name
        for argument in operation.op_def.output_arg
        for _ in range(_length_of(operation, argument))
    ]
    for kernel in kernels.get_registered_kernels_for_op(operation.type).kernel:
        if kernel.device_type not in ("GPU", "DEFAULT"):
            continue
        fits = all(
            operation.get_attr(constraint.name).as_datatype_enum
            in constraint.allowed_values.list.type
            for constraint in kernel.constraint
        )
        if fits and not {names[number] for number in outputs} & set(kernel.host_memory_arg):
            return True
    return False


def _length_of(operation, argument):
    """How many outputs an argument stands for: that of a list has a number, or types."""
    if argument.number_attr:
        return operation.get_attr(argument.number_attr)
    return len(operation.get_attr(argument.type_list_attr)) if argument.type_list_attr else 1


def assert_made_alike(loader_of: Callable[[], Any], at_least: int) -> None:
    """Hold what a graph, and one that XLA compiles, make of a step to what is made eagerly.

    All in a GPU's forms: of the graph's operations at least so many are as large as a batch, and
    all of those have kernels for a GPU.
    """
    gc.collect()  # what other loaders keep has a processor's types
    with gpu_forms(True):
        loader = loader_of()
        given = next(loader.inputs())
        eager = loader.make(given)
        in_graph = tf.function(loader.make, autograph=False)
        compiled = tf.function(loader.make, autograph=False, jit_compile=True)
        for made in (in_graph(given), compiled(given)):
            tf.nest.map_structure(np.testing.assert_array_equal, made, eager)
        graph = in_graph.get_concrete_function(given).graph
    assert without_gpu_kernel(graph, at_least) == []
