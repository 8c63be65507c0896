"""Imports Merlin where TensorFlow has a GPU in its list, then starts a run; prints what holds.

The list is TensorFlow's own, and so is every check behind it: what may be set on a device, and
when. Only its entry is made up, so the device is never opened.
"""

from __future__ import annotations

import importlib
import json
import sys

import merlin.core.compat
import merlin.core.has_gpu
from tensorflow.python.eager import context

CONFIGURED = "merlin.core.compat.tensorflow"
"""Merlin's module that sets the GPU's memory as it is imported."""
GPU = context.PhysicalDevice("/physical_device:GPU:0", "GPU")


def add_gpu() -> None:
    """Add it before anybody asks."""
    tensorflow = context.context()
    tensorflow._initialize_physical_devices()
    tensorflow._physical_devices.append(GPU)
    tensorflow._visible_device_list.append(GPU)
    tensorflow._memory_growth_map[GPU] = None
    for module in (merlin.core.has_gpu, merlin.core.compat):  # of a forked process both are there
        module.HAS_GPU = True


if __name__ == "__main__":
    add_gpu()
    from merlin_sim.foundation.gpus import Gpu, Gpus
    from merlin_sim.foundation.ranks import LocalRank
    from merlin_sim.parallel.ranks import own_gpu

    own_gpu.take(Gpus((Gpu("0"),)), LocalRank())
    sys.modules.pop(CONFIGURED, None)  # by the process that this one was forked from
    importlib.import_module(CONFIGURED)
    import merlin.models.tf  # noqa: F401
    from merlin.core.utils import device_mem_size

    from merlin_sim.parallel.ranks import collectives

    collectives.start()
    options = context.context()._compute_gpu_options()
    devices = options.experimental.virtual_devices
    [limit] = devices[0].memory_limit_mb
    total = device_mem_size(kind="total", cpu=True) / 2**20
    print(json.dumps({"devices": len(devices), "share": round(limit / total, 2)}))
