"""Feeds an epoch of each dataset of users in turn; prints how much more memory the last one took.

    python fed_users_worker.py CANDIDATES SMALL LARGE

The small one is fed first, so that what is loaded and compiled once is not counted.
"""

from __future__ import annotations

import json
import resource
import sys

import numpy as np

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory


def epoch(directory: str, candidates: int) -> dict[str, int]:
    """Count samples, positives and fillers, and add up the users of all rows."""
    dataset = DatasetDirectory.open(directory)
    names = dataset.schema.column_names
    options = {"shuffle": True, "window_rows": 8192, "candidates": candidates}
    feed = open_loader(dataset, "train", names, 4096, Ranks(), **options)
    reported = {"samples": 0, "positives": 0, "users": 0}
    for inputs, labels, *weights in feed:
        weight = weights[0].numpy() if weights else np.ones(len(labels))
        reported["samples"] += int(np.count_nonzero(weight))
        reported["positives"] += int(labels.numpy().sum())
        per_row = weight.sum(axis=1) if weights else weight
        reported["users"] += int((inputs["user"].numpy() * per_row).sum())
    return reported


def peak() -> int:
    """Most bytes that the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    epoch(sys.argv[2], int(sys.argv[1]))
    before = peak()
    found = epoch(sys.argv[3], int(sys.argv[1]))
    print(json.dumps({**found, "bytes": peak() - before}))
