"""The GPUs that this process may see, as their driver's library NVML tells: CUDA stays untouched.

Whoever calls CUDA fixes which GPUs a process sees; so what has to be known before is asked here.
"""

from __future__ import annotations

import os
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

    place: str
    """What ``CUDA_VISIBLE_DEVICES`` calls it: a number, or its UUID."""
    name: str = "GPU"
    """As its maker calls it."""
    cores: frozenset[int] = frozenset()
    """The logical CPUs that are near it; none where the driver does not tell."""


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
    for place in map(str.strip, listed.split(",")):
        try:
            if place.isdigit():
                handle = nvml.nvmlDeviceGetHandleByIndex(int(place))
            else:
                handle = nvml.nvmlDeviceGetHandleByUUID(place.encode())
        except nvml.NVMLError:
            if not place.startswith(("GPU-", "MIG-")):
                return  # as CUDA does: what stands behind an unknown one is hidden too
            yield Gpu(place)  # the beginning of a UUID, which CUDA takes and NVML does not
            continue
        yield _describe(nvml, place, handle)


def _describe(nvml: Any, place: str, handle: Any) -> Gpu:
    try:
        words = nvml.nvmlDeviceGetCpuAffinity(handle, -(-(os.cpu_count() or 1) // _WORD))
    except nvml.NVMLError:  # a virtual machine, most of all
        words = ()
    cores = {
        _WORD * place + bit
        for place, word in enumerate(words)
        for bit in range(_WORD)
        if int(word) >> bit & 1
    }
    return Gpu(place, _text(nvml.nvmlDeviceGetName(handle)), frozenset(cores))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
