"""The GPUs that this process may see, and whether TensorFlow, Merlin and cudf can use them.

The driver's library NVML lists them, and CUDA stays untouched: a process that calls CUDA fixes
which GPUs a process sees. Merlin counts GPUs and takes for granted that TensorFlow and cudf can use
them: a driver that does not fit one of them ends Merlin's imports, so it is tried here first.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"

OLDEST_DRIVERS = {11: "450.80.02", 12: "525.60.13"}
"""The first driver for all versions of a CUDA, as NVIDIA's CUDA compatibility table has them."""

_WORD = 64  # bits of a number in NVML's set of logical CPUs


@dataclass(frozen=True)
class Gpu:
    """One GPU."""

    device_id: str
    """What ``CUDA_VISIBLE_DEVICES`` calls it: a number, or its UUID."""
    name: str = "GPU"
    """As its maker calls it."""
    cores: frozenset[int] = frozenset()
    """The logical CPUs that are near it; none where the driver does not say."""


@dataclass(frozen=True)
class Gpus:
    """All that a process may see, and their driver."""

    visible: tuple[Gpu, ...] = ()
    """In CUDA's order."""
    driver: str = ""
    """The driver's version; empty where none answers."""
    cuda: tuple[int, int] = (0, 0)
    """The newest CUDA that the driver knows."""
    problem: str = ""
    """Why there is no driver that answers."""

    def lacks(self, cuda: int) -> str | None:
        """Say what is wrong where the driver is too old for a CUDA of that major version."""
        if not self.driver or self.cuda[0] >= cuda:
            return None
        return (
            f"the driver {self.driver} knows CUDA {self.cuda[0]}.{self.cuda[1]}, CUDA {cuda} is"
            f" needed: driver {OLDEST_DRIVERS.get(cuda, '')} or newer"
        )


def look() -> Gpus:
    """Ask NVML."""
    try:
        import pynvml as nvml
    except ImportError:
        return Gpus(problem="pynvml is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Gpus(problem=str(error))
    try:
        version = nvml.nvmlSystemGetCudaDriverVersion()
        return Gpus(
            tuple(_visible(nvml)),
            _text(nvml.nvmlSystemGetDriverVersion()),
            (version // 1000, version % 1000 // 10),
        )
    except nvml.NVMLError as error:
        return Gpus(problem=str(error))
    finally:
        nvml.nvmlShutdown()


def _visible(nvml: Any) -> Iterator[Gpu]:
    listed = os.environ.get(VISIBLE)
    if listed is None:
        for index in range(nvml.nvmlDeviceGetCount()):
            yield _describe(nvml, str(index), nvml.nvmlDeviceGetHandleByIndex(index))
        return
    for device_id in map(str.strip, listed.split(",")):
        try:
            if device_id.isdigit():
                handle = nvml.nvmlDeviceGetHandleByIndex(int(device_id))
            else:
                handle = nvml.nvmlDeviceGetHandleByUUID(device_id.encode())
        except nvml.NVMLError:
            if not device_id.startswith(("GPU-", "MIG-")):
                return  # as CUDA does: what stands behind an unknown one is hidden too
            yield Gpu(device_id)  # the beginning of a UUID, which CUDA takes and NVML does not
            continue
        yield _describe(nvml, device_id, handle)


def _describe(nvml: Any, device_id: str, handle: Any) -> Gpu:
    try:
        words = nvml.nvmlDeviceGetCpuAffinity(handle, -(-(os.cpu_count() or 1) // _WORD))
    except nvml.NVMLError:  # a virtual machine, most of all
        words = ()
    cores = {
        _WORD * index + bit
        for index, word in enumerate(words)
        for bit in range(_WORD)
        if int(word) >> bit & 1
    }
    return Gpu(device_id, _text(nvml.nvmlDeviceGetName(handle)), frozenset(cores))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


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
    """Return the CUDA that cudf is built for by the name of its package; 0 where it has none."""
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
