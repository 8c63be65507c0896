"""Feeds three epochs of a parquet file of histories; prints how much memory each of them took.

    python fed_rows_worker.py FILE

Its Merlin schema, schema.pbtxt, lies beside it.
"""

from __future__ import annotations

import gc
import json
import sys

import psutil
from merlin.io import Dataset

from merlin_sim.dataloader.row_loader import RowLoader


def feed(path: str) -> dict[str, object]:
    """Count the batches of every epoch, and the most bytes that the process had during it."""
    dataset = Dataset([path], engine="parquet", cpu=True)
    loader = RowLoader(dataset, 250, shuffle=True, window_rows=1000, data_memory_mb=100)
    process = psutil.Process()
    reported = {"before": process.memory_info().rss, "batches": [], "peaks": []}
    for _ in range(3):
        sizes = [process.memory_info().rss for _ in loader]
        reported["batches"].append(len(sizes))
        reported["peaks"].append(max(sizes))
        gc.collect()
    return reported


if __name__ == "__main__":
    print(json.dumps(feed(sys.argv[1])))
