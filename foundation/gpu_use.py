"""Whether TensorFlow and cudf can use the GPU that there is, and what happens where they cannot.

Merlin counts GPUs and takes for granted that both can: a driver with a TensorFlow or a cudf that
does not fit it ends Merlin's imports. Here it is tried first. How each library says that a GPU's
memory is short is known here too.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import sys
from typing import Any

from .gpus import Gpus

SETUP = "make setup DEVICE=gpu"

# What TensorFlow opens; without one of them it sees no GPU.
_LIBRARIES = {
    11: (
        "libcudart.so.11.0",
        "libcublas.so.11",
        "libcublasLt.so.11",
        "libcufft.so.10",
        "libcusolver.so.11",
        "libcusparse.so.11",
        "libcudnn.so.8",
    )
}


def why_not_merlin(gpus: Gpus) -> str | None:
    """Say what runs on the CPU, and why, where Merlin should find no GPU; None where it may."""
    if not gpus.visible:
        return None
    if not _is_hidden("tensorflow"):
        reason = why_not_tensorflow(gpus)
        if reason is not None:
            return f"runs on the CPU: {reason}."
    reason = why_not_cudf(gpus)
    if reason is None:
        return None
    if _is_hidden("tensorflow"):
        return f"runs on the CPU: {reason}."
    return f"the model runs on the GPU, its feed on the CPU: {reason}."


def short_of_memory(error: BaseException) -> str | None:
    """Say in a sentence what a GPU had no memory for; None where an error is another.

    cudf's come from rmm, whose pool does not speak of CUDA; cupy has a class of its own, and hands
    on what the driver says.

    >>> short_of_memory(MemoryError("std::bad_alloc: out_of_memory: RMM failure at: pool.hpp"))
    'std::bad_alloc: out_of_memory: RMM failure at: pool.hpp.'
    >>> short_of_memory(MemoryError("Unable to allocate 3 GiB for an array"))
    """
    text = str(error)
    if isinstance(error, MemoryError):
        is_gpu = type(error).__module__.startswith("cupy") or "CUDA" in text or "RMM" in text
    else:
        is_gpu = "cudaErrorMemoryAllocation" in text
    return first_line(text) if is_gpu else None


def first_line(text: str) -> str:
    """Return a long message's first line, ended as a sentence."""
    line = (text.splitlines() or [""])[0].rstrip()
    return line if line.endswith(".") else f"{line}."


def _is_hidden(module: str) -> bool:
    return module in sys.modules and sys.modules[module] is None


def why_not_tensorflow(gpus: Gpus) -> str | None:
    """Say why TensorFlow uses no GPU; None where it does."""
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return None
    build = tf.sysconfig.get_build_info()
    if not build.get("is_cuda_build"):
        return "this TensorFlow is built without CUDA"
    cuda = int(str(build["cuda_version"]).split(".")[0])
    missing = [name for name in _LIBRARIES.get(cuda, ()) if not _opens(name)]
    if missing:
        return f"TensorFlow cannot open {', '.join(missing)} ({SETUP})"
    return gpus.lacks(cuda) or (
        "TensorFlow finds no GPU that it can use (TF_CPP_MIN_LOG_LEVEL=0 lets it say more)"
    )


def why_not_cudf(gpus: Gpus) -> str | None:
    """Say why cudf cannot be used; None where it can, which is tried."""
    if importlib.util.find_spec("cudf") is None:
        return f"cudf is not installed ({SETUP})"
    lacking = gpus.lacks(_cuda_of_cudf())
    if lacking is not None:
        return f"cudf: {lacking}"
    try:
        cudf: Any = importlib.import_module("cudf")
        cupy: Any = importlib.import_module("cupy")
        int(cudf.Series([1]).sum()), int((cupy.arange(2) + 1).sum())
    except Exception as error:  # a cudf that does not fit its GPU can raise anything
        return f"cudf cannot be used: {' '.join(str(error).split())[:200]}"
    return None


def _cuda_of_cudf() -> int:
    """Tell the CUDA that cudf is built for by the name of its package; 0 where it has none."""
    for distribution in importlib.metadata.packages_distributions().get("cudf", []):
        if "-cu" in distribution:
            return int(distribution.rpartition("-cu")[2])
    return 0


def _opens(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
