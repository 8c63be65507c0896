"""A small dataset from a log, and a servable of it, made once in a process of their own.

The process that forks workers must not have started TensorFlow, nor NVTabular's graphs.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .worker import patience

BASE = {"seed": 3, "format": "csv", "sizes": {"users": 12, "items": 12}}
KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""What goes with this process."""


@functools.cache
def good_servable() -> Path:
    """Give a directory with ``dataset`` and ``servable`` in it."""
    KEPT.append(tempfile.TemporaryDirectory(prefix="attack-"))
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        [sys.executable, "-m", "attack.good_servable", KEPT[-1].name],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=patience(300),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return Path(KEPT[-1].name)


def make(directory: Path) -> None:
    """Preprocess the log, and export a model of it with random weights."""
    import tensorflow as tf

    from merlin_sim.models import build_model
    from merlin_sim.schemas.dataset import DatasetDirectory
    from merlin_sim.serving.servables.export import export_model

    from .raw_logs import Log, preprocess

    preprocess(Log(BASE).write(directory), directory / "dataset", skip=False)
    dataset = DatasetDirectory.open(directory / "dataset")
    tf.keras.utils.set_random_seed(11)
    options = {"embedding_dim": 4, "long_seq_length": 4, "top_k": 2}
    export_model(build_model("sim", dataset.schema, **options), dataset, directory / "servable")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
