"""Servables that say all that one says, around a model that is a few bytes."""

from __future__ import annotations

from pathlib import Path

from small_logs import sim_spec

from merlin_sim.schemas.dataset import write_documents
from merlin_sim.serving.servable import write_manifest


def write_hollow_servable(directory: Path, model: str, **checkpoint: int) -> Path:
    """Write a servable whose model is a text, with metadata of its checkpoint."""
    (directory / "model").mkdir(parents=True)
    (directory / "model/saved_model.pb").write_text(model)
    write_documents(directory, sim_spec(["train.parquet"], ["test.parquet"]))
    columns = ["who", "thing", "kind", "thing_seen", "kind_seen"]
    metadata = {
        "request": {"of": "events", "columns": columns, "numbers": None},
        "model": {"type": "din", "options": {}, "precision": "float32"},
        "checkpoint": {
            "name": f"step-{model}",
            "sha256": f"digest of {model}",
            "dataset": "f00d",
            **checkpoint,
        },
        "histories": "ragged",
    }
    write_manifest(directory, metadata)
    return directory
