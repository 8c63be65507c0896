"""A small dataset that somebody brought, and checkpoints of models on it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec

USERS, BOOKS, LENGTH, ROWS = 9, 30, 6, 40


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> DatasetDirectory:
    """A dataset somebody brought: no vocabularies, so raw keys are ids."""
    path = tmp_path_factory.mktemp("brought") / "dataset"
    path.mkdir()
    names = ("click", "reader", "book", "read", "skipped")
    features = {
        "click": Feature("int8"),
        "reader": Feature("int64", USERS),
        "book": Feature("int64", BOOKS),
        "read": Feature("int64", BOOKS, (LENGTH,)),
        "skipped": Feature("int64", BOOKS, (LENGTH,)),
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
    lengths = chance.integers(0, LENGTH + 1, ROWS)
    lists = [[chance.integers(1, BOOKS + 1, n).tolist() for n in lengths] for _ in range(2)]
    columns = [
        pa.array(chance.integers(0, 2, ROWS), pa.int8()),
        pa.array(chance.integers(1, USERS + 1, ROWS)),
        pa.array(chance.integers(1, BOOKS + 1, ROWS)),
        *(pa.array(rows, pa.list_(pa.int64())) for rows in lists),
    ]
    rows = pa.table(columns, names=list(names))
    pq.write_table(rows.take(np.arange(ROWS)[::-1]), path / "train.parquet")
    pq.write_table(rows, path / "test.parquet")
    FeatureSpec(features, files, channels, {}).write(path / "feature_spec.yaml")
    return DatasetDirectory.open(path)


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
    from merlin_sim.training.checkpoints.run_state import RunFacts, RunState

    def save(kind, of=dataset, order=None, **options):
        tf.keras.utils.set_random_seed(2)
        model = build_model(kind, of.schema, **options)
        for variable in model.trainable_variables:
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
        optimizer = make_optimizer("adam", model.trainable_variables, 0.01)
        ids = note_of(of).to_dict()
        facts = RunFacts(
            kind, options, "adam", fingerprint(of), False, {"seed": 1, **(order or {})}, ids
        )
        state = RunState(model, optimizer, LossScale(False), facts)
        checkpoints = tmp_path_factory.mktemp("run") / "checkpoints"
        CheckpointStore(checkpoints).save(7, *state.to_checkpoint(), auc=0.5)
        return model, checkpoints

    return save
