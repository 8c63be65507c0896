"""Stands in for pynvml where there is no GPU: a driver that reports the GPUs in GPU_STAND_INS.

That variable holds JSON: {"driver": "535.104.05", "cuda": 12020, "gpus": [{"cores": [0, 1]}]}; a
GPU may tell its name and its bytes of memory too. It has the functions that are called and no
others, and refuses what the driver's library refuses: a call before nvmlInit or after nvmlShutdown,
an index or UUID that is not there, and text where the library takes bytes.
"""

from __future__ import annotations

import json
import os
import types

NVML_DEVICE_MIG_DISABLE, NVML_DEVICE_MIG_ENABLE = 0, 1
_open = 0


class NVMLError(Exception):
    """What the library answers instead of a value."""


class NVMLError_LibraryNotFound(NVMLError):
    """There is no driver."""


class NVMLError_DriverNotLoaded(NVMLError):
    """The driver is not loaded."""


class NVMLError_Unknown(NVMLError):
    """As its name says."""


class NVMLError_NotSupported(NVMLError):
    """This GPU does not report it."""


def _machine():
    if not _open:
        raise NVMLError("Uninitialized")
    return json.loads(os.environ["GPU_STAND_INS"])


def _gpu(index):
    gpus = _machine()["gpus"]
    if not 0 <= index < len(gpus):
        raise NVMLError("Invalid Argument")
    return gpus[index]


def nvmlInit():
    global _open
    if not os.environ.get("GPU_STAND_INS"):
        raise NVMLError_LibraryNotFound("NVML Shared Library Not Found")
    _open += 1


def nvmlShutdown():
    global _open
    _machine()
    _open -= 1


def nvmlSystemGetDriverVersion():
    return _machine()["driver"].encode()


def nvmlSystemGetCudaDriverVersion():
    return _machine()["cuda"]


def nvmlDeviceGetCount():
    return len(_machine()["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    _gpu(index)
    return index


def nvmlDeviceGetHandleByUUID(uuid):
    if not isinstance(uuid, bytes):
        raise TypeError("bytes or integer address expected instead of str instance")
    for index in range(nvmlDeviceGetCount()):
        if f"GPU-{index:08d}-0000".encode() == uuid:
            return index
    raise NVMLError("Not Found")


def nvmlDeviceGetName(handle):
    return _gpu(handle).get("name", "NVIDIA Stand-In").encode()


def nvmlDeviceGetCpuAffinity(handle, cpuSetSize):
    if "cores" not in _gpu(handle):
        raise NVMLError_NotSupported("Not Supported")
    words = [0] * cpuSetSize
    for core in _gpu(handle)["cores"]:
        words[core // 64] |= 1 << core % 64
    return words


def nvmlDeviceGetUUID(handle):
    _gpu(handle)
    return f"GPU-{handle:08d}-0000"


def nvmlDeviceGetMemoryInfo(handle):
    total = _gpu(handle).get("memory", 16 * 2**30)
    return types.SimpleNamespace(total=total, free=total, used=0)


def nvmlDeviceGetComputeRunningProcesses(handle):
    _gpu(handle)
    return []


def nvmlDeviceGetMigMode(device):
    _gpu(device)
    raise NVMLError_NotSupported("Not Supported")


def nvmlDeviceGetUtilizationRates(handle):
    _gpu(handle)
    raise NVMLError_NotSupported("Not Supported")
