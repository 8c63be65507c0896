"""The golden cases: what a model has to give, computed by the published code.

Those in ``tests/models/golden/``, which ``make.py`` there makes anew, and those in the folder named
by the environment variable GOLDEN_DIR; each says in its ``config`` which model it is of.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2] / "models" / "golden"
RELATIVE, ABSOLUTE = 1e-5, 1e-7


def golden_cases(models):
    """Find the cases of these models."""
    folders = [HERE, *map(Path, filter(None, [os.environ.get("GOLDEN_DIR")]))]
    found = {folder: sorted(folder.glob("*.npz")) for folder in folders}
    assert all(found.values()), f"no cases in one of {', '.join(map(str, folders))}"
    paths = [path for folder in folders for path in found[folder]]
    return [path for path in paths if model_of(read_golden(path)["config"]) in models]


def model_of(config):
    return config.get("model_type") or config["model"]


def read_golden(path):
    golden = {"config": None, "input": {}, "weight": {}, "output": {}, "loss": {}, "grad": {}}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            if key == "config":
                golden["config"] = json.loads(str(arrays[key]))
            else:
                kind, _, name = key.partition("/")
                array = arrays[key]  # weights are kept in 16 bits, where those hold them
                golden[kind][name] = array.astype(np.float32) if kind == "weight" else array
    return golden


def assert_close(ours, theirs, name):
    ours = np.asarray(ours, np.float64).reshape(theirs.shape)
    theirs = theirs.astype(np.float64)
    error, norm = np.linalg.norm(ours - theirs), np.linalg.norm(theirs)
    # Where the golden value is 0 up to rounding (a bias before a softmax) so must ours be.
    limit = RELATIVE * norm if norm > ABSOLUTE else ABSOLUTE
    assert error <= limit, f"{name}: ||ours - golden|| = {error:.3g}, ||golden|| = {norm:.3g}"
