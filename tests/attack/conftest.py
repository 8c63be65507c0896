"""Good datasets of logs, and servables of models that nothing asks, made once."""

import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from merlin_sim.models import build_model
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.triton import export

from .logs import ITEMS, USERS, Row, Shape, write_log
from .test_days_of_clicks import KEYS, NUMBERS, preprocess
from .test_logs import preprocess as preprocess_log


@pytest.fixture(scope="session")
def good(tmp_path_factory) -> Path:
    home, drawn = tmp_path_factory.mktemp("good"), random.Random(3)
    rows = [
        Row(drawn.choice(USERS), drawn.choice(ITEMS), drawn.randint(1, 50), 1) for _ in range(90)
    ]
    stored = {"line end": "\n", "quotes": 0, "last line end": True, "spare": None, "order": drawn}
    shape = Shape(False, False, "csv", stored, None)
    log = write_log(rows, shape, home / "log")
    preprocess_log(log, "--output_path", home / "dataset", *shape.words)
    (home / "days").mkdir()
    for day in range(3):
        with open(home / f"days/day_{day}", "w") as file:
            for row in range(30):
                numbers = [str(drawn.randint(-2, 99)) for _ in range(NUMBERS)]
                keys = [f"{drawn.randint(0, 9) * 0x1234567:08x}" for _ in range(KEYS)]
                print(row % 2, *numbers, *keys, sep="\t", file=file)
    preprocess(home / "days", home / "clicks", skip=False)
    _export(home / "dataset", "din", home / "servable", {"embedding_dim": 4})
    sizes = {"embedding_dim": 4, "bottom_mlp_dims": (8, 4), "top_mlp_dims": (8, 1)}
    _export(home / "clicks", "dlrm", home / "click servable", sizes)
    arrays = {"model/0": np.ones((5, 4), np.float32), "optimizer/0": np.arange(7)}
    metadata = {"epoch": 1, "step": 3, "model_type": "sim", "model_options": {"mlp": [8, 4]}}
    CheckpointStore(home / "saved").save(3, metadata, whole(arrays), 0.6)
    return home


def _export(data: Path, name: str, servable: Path, options: dict[str, Any]) -> None:
    dataset = DatasetDirectory.open(data)
    with mock.patch.object(export, "save_served_model", _write_no_model):
        export.export_model(build_model(name, dataset.schema, **options), dataset, servable)


def _write_no_model(model: Any, schema: Any, path: Path, *more: Any) -> None:
    (path / "variables").mkdir(parents=True)
    (path / "saved_model.pb").write_bytes(bytes(range(256)))
    (path / "variables/variables.index").write_bytes(b"of no model")
