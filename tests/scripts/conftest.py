"""A small dataset that somebody brought, and checkpoints of models on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec


def write_brought(path, readers=9, books=30, length=6, rows=40) -> DatasetDirectory:
    """A dataset somebody brought: no vocabularies, so raw keys are ids."""
    path.mkdir()
    names = ("click", "reader", "book", "read", "skipped")
    features = {
        "click": Feature("int8"),
        "reader": Feature("int64", readers),
        "book": Feature("int64", books),
        "read": Feature("int64", books, (length,)),
        "skipped": Feature("int64", books, (length,)),
    }
    files = {
        mapping: (Chunk("parquet", names, (f"{mapping}.parquet",)),)
        for mapping in ("train", "test")
    }
    channels = {
        "label": ("click",),
        "user_features": ("reader",),
        "target_item_features": ("book",),
        "positive_history": ("read",),
        "negative_history": ("skipped",),
    }
    chance = np.random.default_rng(4)
    lengths = chance.integers(0, length + 1, rows)
    lists = [[chance.integers(1, books + 1, n).tolist() for n in lengths] for _ in range(2)]
    columns = [
        pa.array(chance.integers(0, 2, rows), pa.int8()),
        pa.array(chance.integers(1, readers + 1, rows)),
        pa.array(chance.integers(1, books + 1, rows)),
        *(pa.array(ids, pa.list_(pa.int64())) for ids in lists),
    ]
    table = pa.table(columns, names=list(names))
    pq.write_table(table.take(np.arange(rows)[::-1]), path / "train.parquet")
    pq.write_table(table, path / "test.parquet")
    FeatureSpec(features, files, channels, {}).write(path / "feature_spec.yaml")
    return DatasetDirectory.open(path)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> DatasetDirectory:
    return write_brought(tmp_path_factory.mktemp("brought") / "dataset")


@pytest.fixture(scope="session")
def grown(tmp_path_factory) -> Path:
    """The next day: 10 more books, 3 more readers, longer histories; ids are keys."""
    path = tmp_path_factory.mktemp("grown") / "dataset"
    return write_brought(path, readers=12, books=40, length=8, rows=90).path


@pytest.fixture(scope="session")
def save_checkpoint(dataset, tmp_path_factory):
    """Makes a model with random weights, and a run's directory of checkpoints with them."""
    import tensorflow as tf

    from merlin_sim.models import build_model
    from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
    from merlin_sim.parallel.steps.loss_scale import LossScale
    from merlin_sim.parallel.steps.optimizers import make_optimizer
    from merlin_sim.schemas.fingerprint import fingerprint
    from merlin_sim.schemas.known_keys import note_of
    from merlin_sim.training.checkpoints.run_state import RunMetadata, RunState

    def save(kind, of=dataset, order=None, **options):
        tf.keras.utils.set_random_seed(2)
        model = build_model(kind, of.schema, **options)
        for variable in model.trainable_variables:
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
        optimizer = make_optimizer("adam", model.trainable_variables, 0.01)
        ids = note_of(of).to_dict()
        metadata = RunMetadata(
            kind, options, "adam", fingerprint(of), False, {"seed": 1, **(order or {})}, ids
        )
        state = RunState(model, optimizer, LossScale(False), metadata)
        checkpoints = tmp_path_factory.mktemp("run") / "checkpoints"
        CheckpointStore(checkpoints).save(7, *state.to_checkpoint(), auc=0.5)
        return model, checkpoints

    return save
