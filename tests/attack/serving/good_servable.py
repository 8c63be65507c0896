"""Small datasets from logs, and servables of them, made once in a process of their own.

The process that forks workers must not have started TensorFlow, nor NVTabular's graphs.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..worker import patience

BASE = {"seed": 3, "format": "csv", "sizes": {"users": 12, "items": 12}}
CLICKS = {"seed": 3, "packed": False, "sizes": {"rows": [30, 20, 20]}}
KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""What goes with this process."""
MADE: list[Path] = []
"""What was made before, by whoever started this process."""


@functools.cache
def good_servable() -> Path:
    """Give a directory with ``dataset`` and ``servable`` in it, both of ``click``s, and users."""
    if MADE:
        return MADE[0]
    KEPT.append(tempfile.TemporaryDirectory(prefix="attack-"))
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(
        [sys.executable, "-m", "attack.serving.good_servable", KEPT[-1].name],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=patience(300),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return Path(KEPT[-1].name)


def make(directory: Path) -> None:
    """Preprocess the logs, and export models of them with random weights."""
    from ..logs.click_logs import Days
    from ..logs.click_logs import preprocess as preprocess_clicks
    from ..logs.raw_logs import Log, preprocess

    log = Log(BASE).write(directory)
    preprocess(log, directory / "dataset", skip=False)
    preprocess(log, directory / "users dataset", skip=False, layout="users")
    (directory / "days").mkdir()
    Days(CLICKS).write(directory / "days")
    preprocess_clicks(directory / "days", directory / "click dataset", skip=False)
    _export(directory / "dataset", "din", directory / "servable", {"embedding_dim": 4})
    sizes = {"embedding_dim": 4, "bottom_mlp_dims": (8, 4), "top_mlp_dims": (8, 1)}
    _export(directory / "click dataset", "dlrm", directory / "click servable", sizes)


def _export(data: Path, name: str, servable: Path, options: dict[str, Any]) -> None:
    import tensorflow as tf

    from merlin_sim.models import build_model
    from merlin_sim.schemas.dataset import DatasetDirectory
    from merlin_sim.serving.servables.export import export_model

    dataset = DatasetDirectory.open(data)
    tf.keras.utils.set_random_seed(11)
    export_model(build_model(name, dataset.schema, **options), dataset, servable)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
