"""Starts dask-cuda's own cluster on a machine whose GPUs are made up, and asks each worker.

    python cuda_cluster_worker.py

The driver's library, cudf, cupy and rmm are those of tests/stand_ins/; what starts the workers,
deals the GPUs out and sets memory up in each is dask-cuda. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def ask() -> dict[str, Any]:
    """Tell what this worker was given."""
    import cudf
    import cupy
    import rmm

    return {
        "visible": os.environ["CUDA_VISIBLE_DEVICES"],
        "cores": sorted(os.sched_getaffinity(0)),
        "pools": rmm.pools,
        "spills": cudf.options.get("spill"),
        "allocators": [allocator.__name__ for allocator in cupy.allocators],
        "tensorflow": "tensorflow" in sys.modules and sys.modules["tensorflow"] is not None,
    }


def main() -> None:
    """Run something on every worker."""
    from merlin_sim.foundation.process_wide import collect_less_often, hide_tensorflow

    collect_less_often()
    hide_tensorflow()
    import dask

    from merlin_sim.workflows.schedulers import DaskCluster, open_scheduler

    with open_scheduler("auto") as scheduler:
        assert isinstance(scheduler, DaskCluster) and scheduler.host is not None
        reported = scheduler.client.run(ask)
        computed = sorted(scheduler.compute([dask.delayed(abs)(-n) for n in range(5)]))
        ran = sorted(scheduler.run(abs, [-1, -2]))
    import cudf

    here = cudf.options.get("spill")
    workers = sorted(reported.values(), key=lambda worker: worker["visible"])
    print(json.dumps({"workers": workers, "computed": computed, "ran": ran, "here": here}))


if __name__ == "__main__":
    main()
