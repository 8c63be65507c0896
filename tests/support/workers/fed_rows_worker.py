"""Feeds two epochs of a parquet file of histories; prints how much memory each of them took.

    python fed_rows_worker.py FILE

Its Merlin schema, schema.pbtxt, lies beside it. There is one arena: pieces that allocators keep
are not the loader's.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys

import psutil
import pyarrow as pa
from merlin.io import Dataset

from merlin_sim.dataloader.row_loader import RowLoader

M_ARENA_MAX = -8
"""As glibc's mallopt names it."""


def feed(path: str) -> dict[str, object]:
    """Count the batches of every epoch, and the most bytes that the process had during it."""
    dataset = Dataset([path], engine="parquet", cpu=True)
    loader = RowLoader(dataset, 250, shuffle=True, window_rows=1000, data_memory_mb=100)
    process = psutil.Process()
    reported = {"before": process.memory_info().rss, "batches": [], "peaks": []}
    for _ in range(2):
        sizes = [process.memory_info().rss for _ in loader]
        reported["batches"].append(len(sizes))
        reported["peaks"].append(max(sizes))
        gc.collect()
    return reported


if __name__ == "__main__":
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    pa.set_memory_pool(pa.system_memory_pool())
    print(json.dumps(feed(sys.argv[1])))
