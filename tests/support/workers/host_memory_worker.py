"""Trains small models on a device: DLRMs with all tables there or some in host memory, and a SIM.

    python host_memory_worker.py FOLDER DATASET

The device is TensorFlow's second logical CPU, host memory its first. Writes FOLDER/report.json: for
each optimizer the losses of both DLRMs, where every variable is, and where the operations on
tables ran; for SIM where its variables are and which operations of a step and of a prediction ran
on the host. FOLDER/<optimizer>-<memory> is a DLRM's checkpoint after the last step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from spread_worker import BATCH, OPTIONS, STEPS, batches, make_schema  # noqa: E402
from steps_in_graph import on_batches  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.models.blocks.embeddings.sharded_tables import sharded_tables  # noqa: E402
from merlin_sim.models.known_families import find_family  # noqa: E402
from merlin_sim.models.saving import table_names  # noqa: E402
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore  # noqa: E402
from merlin_sim.parallel.placement.plan import PlanOptions  # noqa: E402
from merlin_sim.parallel.placement.planner import make_plan  # noqa: E402
from merlin_sim.parallel.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.parallel.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.parallel.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.training.checkpoints.run_state import RunMetadata, RunState  # noqa: E402
from merlin_sim.training.evaluation.prediction import Predictor  # noqa: E402

OPTIMIZERS = ("adagrad", "lazy_adam")
CUT = {"adagrad": "auto", "lazy_adam": "rows"}
ON_TABLES = ("ResourceGather", "ResourceScatter", "ResourceApply")
MEMORY = 10_000
"""Bytes that hold the two smaller tables with any optimizer, and not the largest."""
DEVICE = "CPU:1"
SIM = {"embedding_dim": 4, "stage_two_mlp_dims": (8,), "stage_one_mlp_dims": (4,)}
SIM |= {"aux_mlp_dims": (4,), "long_seq_length": 8, "top_k": 3}


def make_state(optimizer: str, memory: int | None) -> RunState:
    tf.keras.utils.set_random_seed(7)
    schema, family = make_schema(), find_family("dlrm")
    host = 0 if memory is None else 10**6
    wanted = PlanOptions(1, BATCH, optimizer, memory, CUT[optimizer], host_memory=host)
    plan = make_plan(family.tables(schema, family.options.parse(OPTIONS)), wanted)
    with sharded_tables(plan, Ranks()):
        model = build_model("dlrm", schema, **OPTIONS)
    made = make_optimizer(optimizer, model.trainable_variables, 0.05)
    metadata = RunMetadata("dlrm", {}, optimizer, "data", False, {})
    return RunState(model, made, LossScale(False), metadata)


def train(optimizer: str, memory: int | None, folder: Path) -> dict[str, object]:
    state = make_state(optimizer, memory)
    step = TrainStep(state.model, state.optimizer, state.loss_scale, Ranks())
    train_on, losses, first = on_batches(step), [], None
    context.enable_run_metadata()
    context.export_run_metadata()  # what ran before
    for columns, labels, _ in batches(Ranks()):
        given = columns, labels[:, None], tf.ones([len(labels), 1])
        losses.append(float(train_on(given).losses[0]))
        first = first or columns
    ran = context.export_run_metadata()
    context.disable_run_metadata()
    store = CheckpointStore(folder / f"{optimizer}-{memory}")
    metadata, parts = state.to_checkpoint()
    store.save(STEPS, metadata, parts)
    tables = {name: state.variables[name] for name in table_names(state.model)}
    return {
        "losses": losses,
        "tables": {table_names(state.model)[name]: v.device for name, v in tables.items()},
        "devices": {name: v.device for name, v in state.variables.items()},
        "logits": tf.reshape(state.model.forward(first).logits, [-1]).numpy().tolist(),
        "operations": operations(ran),
        **({} if memory is None else restored(make_state(optimizer, memory), store, first)),
    }


def restored(state: RunState, store: CheckpointStore, columns: dict) -> dict[str, object]:
    """Where the variables of a model are that goes on from a checkpoint, and its logits."""
    state.restore(store.load())
    return {
        "restored": {name: v.device for name, v in state.variables.items()},
        "restored_logits": tf.reshape(state.model.forward(columns).logits, [-1]).numpy().tolist(),
    }


def operations(ran: object) -> list[tuple[str, str]]:
    """Name the kernels on tables that ran, each with its device."""
    nodes = [node for graph in ran.partition_graphs for node in graph.node]
    return sorted({(n.op, n.device) for n in nodes if n.op.startswith(ON_TABLES)})


def put_sim(directory: str) -> dict[str, object]:
    """Train for a step and predict a batch, in float16 and with rows of tables."""
    dataset = DatasetDirectory.open(Path(directory))
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    model = build_model("sim", dataset.schema, **SIM)
    optimizer = make_optimizer("lazy_adam", model.trainable_variables, 0.05)
    scale = LossScale(True)
    step, predict = TrainStep(model, optimizer, scale, Ranks()), Predictor(model)
    feed = open_loader(dataset, "train", dataset.schema.column_names, 16, Ranks())
    columns, labels = next(iter(feed))
    feed.stop()
    columns = {name: tf.identity(column) for name, column in columns.items()}
    labels = tf.identity(labels)
    context.enable_run_metadata()
    context.export_run_metadata()  # what ran before
    train = tf.function(step.run, autograph=False)
    train(columns, labels, tf.constant(False), tf.constant(1.0))
    predict(columns)
    ran = context.export_run_metadata()
    context.disable_run_metadata()
    variables = [*model.variables, *optimizer.variables, scale.scale, scale.good_steps]
    nodes = [node for graph in ran.partition_graphs for node in graph.node]
    there = [node.device.endswith(DEVICE) for node in nodes]
    return {
        "variables": sorted({variable.device[-5:] for variable in variables}),
        "on_device": sum(there),
        "on_host": sorted({n.op for n, is_there in zip(nodes, there, strict=True) if not is_there}),
    }


if __name__ == "__main__":
    home, reported = Path(sys.argv[1]), {}
    with tf.device(DEVICE):
        for name in OPTIMIZERS:
            reported[name] = [train(name, memory, home) for memory in (None, MEMORY)]
        reported["sim"] = put_sim(sys.argv[2])
    (home / "report.json").write_text(json.dumps(reported))
