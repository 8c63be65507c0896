"""Loads a workflow in a process of its own, transforms a frame, and leaves the result in a file."""

from __future__ import annotations

import sys

import pandas as pd

from merlin_sim.workflows.ops.saving import load_workflow

if __name__ == "__main__":
    directory, frame, result = sys.argv[1:]
    load_workflow(directory).transform(pd.read_parquet(frame)).to_parquet(result)
