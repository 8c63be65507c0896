r"""Run a script of NVIDIA's published SIM for TensorFlow2 as it stands, on a machine without a GPU.

    python benchmarks/published.py PUBLISHED PACKAGES main.py --dataset_dir ...

PUBLISHED is the folder TensorFlow2/Recommendation/SIM of NVIDIA/DeepLearningExamples, PACKAGES a
folder with tensorflow-addons, which only the published code needs, and LightGBM, of which
``bench_published.py`` makes the trees beside:

    git clone https://github.com/NVIDIA/DeepLearningExamples
    .venv/bin/uv pip install --target PACKAGES --no-deps tensorflow-addons==0.20 "typeguard<3" \
      lightgbm

dllogger, which is not on PyPI, is stood in for by one that writes a JSON line for each entry, and
pynvml, which wants a GPU when it is imported, by nothing. Two things are mended while the script
runs: ``np.bool``, which numpy no longer has, and ``np.array_split``, which cuts the records that
``parquet_to_tfrecord.py`` gives it off at their last zero bytes.

The published DLRM_and_DCNv2 does not run here: line 22 of its ``main.py`` imports
``distributed_embeddings``, which is built with CUDA and is on no index.
"""

from __future__ import annotations

import json
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np


def stand_in(name: str, **members: Any) -> None:
    """Put a module of one's own where another is imported."""
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module


def log_lines() -> dict[str, Any]:
    """Make what the published code uses of dllogger."""
    files: list[Path] = []

    def log(step: Any, data: dict[str, Any], verbosity: Any = None) -> None:
        for path in files:
            with path.open("a") as file:
                file.write(json.dumps({"step": step, "data": data}) + "\n")

    def json_backend(verbosity: Any, filename: str) -> Path:
        return Path(filename)

    def init(backends: list[Path | None]) -> None:
        files.extend(backend for backend in backends if backend is not None)

    return {
        "JSONStreamBackend": json_backend,
        "StdOutBackend": lambda verbosity: None,
        "Verbosity": types.SimpleNamespace(VERBOSE=1),
        "init": init,
        "log": log,
        "metadata": lambda *names: None,
    }


def split_whole(array_split: Any) -> Any:
    """Split lists of bytes as objects: an array of bytes drops zeros at their ends."""

    def split(values: Any, parts: int) -> Any:
        if isinstance(values, list) and values and isinstance(values[0], bytes):
            values = np.array(values, dtype=object)
        return array_split(values, parts)

    return split


def main() -> None:
    """Run one script with the arguments that follow it."""
    folder, packages, script = sys.argv[1:4]
    sys.path.insert(0, folder)
    sys.path.append(packages)
    stand_in("dllogger", **log_lines())
    stand_in("pynvml", nvmlInit=lambda: None)
    np.bool = bool
    np.array_split = split_whole(np.array_split)
    sys.argv = sys.argv[3:]
    runpy.run_path(str(Path(folder) / script), run_name="__main__")


if __name__ == "__main__":
    main()
