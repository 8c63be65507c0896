"""Small DLRMs with spread tables, as a rank or one process trains them.

Each case leaves a checkpoint of what all ranks have after the last step. It gives the losses of its
steps, and what the trained model gives for the first batches, with its AUC.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from full_batch import filled
from merlin.schema import ColumnSchema, Schema, Tags
from steps_in_graph import on_batches

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.models.blocks.embeddings.sharded_tables import own_variables, sharded_tables
from merlin_sim.models.known_families import find_family
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.parallel.placement.plan import PlanOptions
from merlin_sim.parallel.placement.planner import make_plan
from merlin_sim.parallel.ranks import collectives
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import make_optimizer
from merlin_sim.parallel.steps.train_step import TrainStep
from merlin_sim.training.checkpoints.run_state import RunMetadata, RunState, save_together
from merlin_sim.training.evaluation.metrics import AUC

ROWS = (3, 50, 200)
OPTIONS = {"embedding_dim": 8, "bottom_mlp_dims": (16, 8), "top_mlp_dims": (16, 1)}
BATCH, STEPS = 24, 50
SCORED = 4
"""Batches of all ranks that the trained model scores: the fifth has rows for one rank only."""


@dataclass(frozen=True)
class Case:
    """A way of spreading, an optimizer, and the rows of the tables."""

    cut: str
    optimizer: str
    rows: tuple[int, ...] = ROWS

    @property
    def name(self) -> str:
        return f"{self.cut}-{self.optimizer}"


CASES = [
    # Of three ranks one owns nothing of whole tables, and nothing of rows of the smallest one.
    Case("whole", "sgd", (50, 200)),
    Case("columns", "lazy_adam"),
    Case("rows", "adagrad", (2, 50, 200)),
]


def make_schema(of: tuple[int, ...] = ROWS) -> Schema:
    columns = [
        ColumnSchema("clicked", dtype="int64", tags=["label", Tags.TARGET]),
        ColumnSchema("number", dtype="float32", tags=["numerical", Tags.CONTINUOUS]),
    ]
    for index, rows in enumerate(of):
        domain = {"domain": {"min": 0, "max": rows - 1, "name": f"c{index}"}}
        tags = ["categorical", Tags.CATEGORICAL]
        columns.append(ColumnSchema(f"c{index}", dtype="int64", tags=tags, properties=domain))
    return Schema(columns)


def batches(ranks: Ranks, of: tuple[int, ...] = ROWS):
    """The rank's part of every global batch; the last of five is so small that ranks get none."""
    rng = np.random.default_rng(5)
    for step in range(STEPS):
        rows = 1 if step % 5 == 4 else BATCH
        columns = {"number": rng.normal(size=rows).astype(np.float32)}
        for index, size in enumerate(of):
            columns[f"c{index}"] = (size * rng.random(rows) ** 2).astype(np.int32)
        labels = rng.integers(0, 2, rows).astype(np.float32)
        own = BATCH // ranks.size
        mine = slice(ranks.rank * own, (ranks.rank + 1) * own)
        yield {n: tf.constant(v[mine]) for n, v in columns.items()}, tf.constant(labels[mine]), rows


def train(case: Case, ranks: Ranks, folder: Path) -> dict[str, list[float]]:
    tf.keras.utils.set_random_seed(7)
    schema, family = make_schema(case.rows), find_family("dlrm")
    tables = family.tables(schema, family.options.parse(OPTIONS))
    plan = make_plan(tables, PlanOptions(ranks.size, BATCH, case.optimizer, cut=case.cut))
    with sharded_tables(plan, ranks):
        model = build_model("dlrm", schema, **OPTIONS)
    optimizer = make_optimizer(case.optimizer, model.trainable_variables, 0.05)
    metadata = RunMetadata("dlrm", {}, case.optimizer, "data", False, {})
    state = RunState(model, optimizer, LossScale(False), metadata)
    step = TrainStep(model, optimizer, state.loss_scale, ranks, own=own_variables(model))
    train_on, losses = on_batches(step), []
    for columns, labels, _ in batches(ranks, case.rows):
        given = filled(columns, labels, BATCH // ranks.size)
        losses.append(float(train_on(given).losses[0]))
    logits, auc = score(model, case, ranks)
    store = CheckpointStore(folder / case.name)
    if state.parts:
        save_together(store, state, {}, None, ranks)
    elif ranks.is_first:
        described, arrays = state.to_checkpoint()
        store.save(0, described, arrays)
    return {"losses": losses, "logits": logits.tolist(), "auc": [auc]}


def score(model: Any, case: Case, ranks: Ranks) -> tuple[np.ndarray, float]:
    """Return the logits of the first batches, and their AUC."""
    counts, logits = AUC(), []
    for columns, labels, _ in itertools.islice(batches(ranks, case.rows), SCORED):
        own = tf.reshape(model.forward(columns).logits, [-1]).numpy()
        found = np.concatenate(collectives.gather_objects(own, ranks))
        counts.update_state(
            np.concatenate(collectives.gather_objects(labels.numpy(), ranks)),
            1 / (1 + np.exp(-found)),
        )
        logits.append(found)
    return np.concatenate(logits), float(counts.exact_result() or 0)


def train_all(
    ranks: Ranks, folder: Path, names: Collection[str]
) -> dict[str, dict[str, list[float]]]:
    return {case.name: train(case, ranks, folder) for case in CASES if case.name in names}
