"""Imports Merlin where TensorFlow has a GPU in its list, then starts a run; prints what holds.

The list is TensorFlow's own, and so is every check behind it: what may be set on a device, and
when. Only its entry is made up, so the device is never opened.
"""

from __future__ import annotations

import json

import merlin.core.has_gpu
from tensorflow.python.eager import context

GPU = context.PhysicalDevice("/physical_device:GPU:0", "GPU")


def add_gpu() -> None:
    """Add it before anybody asks."""
    tensorflow = context.context()
    tensorflow._initialize_physical_devices()
    tensorflow._physical_devices.append(GPU)
    tensorflow._visible_device_list.append(GPU)
    tensorflow._memory_growth_map[GPU] = None
    merlin.core.has_gpu.HAS_GPU = True


if __name__ == "__main__":
    add_gpu()
    from merlin_sim.foundation.gpus import Gpu, Gpus
    from merlin_sim.foundation.ranks import LocalRank
    from merlin_sim.parallel.ranks import own_gpu

    own_gpu.take(Gpus((Gpu("0"),)), LocalRank())
    import merlin.models.tf  # noqa: F401
    from merlin.core.utils import device_mem_size

    from merlin_sim.parallel.ranks import collectives

    collectives.start()
    options = context.context()._compute_gpu_options()
    devices = options.experimental.virtual_devices
    [limit] = devices[0].memory_limit_mb
    total = device_mem_size(kind="total", cpu=True) / 2**20
    print(json.dumps({"devices": len(devices), "share": round(limit / total, 2)}))
