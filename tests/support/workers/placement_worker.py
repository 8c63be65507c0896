"""Trains and asks a small SIM on TensorFlow's second logical CPU, which stands for a GPU.

    python placement_worker.py DATASET

The first stands for the host. Prints one line of JSON: where every variable is, and which
operations ran on the host.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

from tensorflow.python.eager import context  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.parallel.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.parallel.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.parallel.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.training.evaluation.prediction import Predictor  # noqa: E402

SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8,), "stage_one_mlp_dims": (4,)}
SMALL |= {"aux_mlp_dims": (4,), "long_seq_length": 8, "top_k": 3}


def on_device(name: str) -> bool:
    """Tell the device's name from the host's."""
    return name.endswith("CPU:1")


def main(directory: str) -> None:
    """Train for a step and predict a batch, in float16 and with rows of tables."""
    dataset = DatasetDirectory.open(Path(directory))
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    with tf.device("CPU:1"):
        model = build_model("sim", dataset.schema, **SMALL)
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
    reported = {
        "variables": sorted({variable.device[-5:] for variable in variables}),
        "on_device": sum(on_device(node.device) for node in nodes),
        "on_host": sorted({node.op for node in nodes if not on_device(node.device)}),
    }
    print(json.dumps(reported))


if __name__ == "__main__":
    main(sys.argv[1])
