"""The published training step as XLA takes it, where the published code is at hand.

    PYTHONPATH=PACKAGES .venv/bin/python benchmarks/gpu/published_step.py CODE PROGRAM.hlo

CODE is the published folder (TensorFlow2/Recommendation/SIM); PACKAGES has tensorflow-addons 0.20,
which only it needs. ``step_cost.py --published CODE`` runs it. Of one rank Horovod sends nothing:
tables' gradients are made dense, as the published ``sparse_as_dense`` has it, and that is all.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

BATCH, LONG, SHORT = 4096, 90, 10
LARGEST = {"user": 1217, "item": 11_349, "category": 241}
CHANNELS = {
    "label": ["label"],
    "user_features": ["user"],
    "target_item_features": ["item", "category"],
    "positive_history": ["item_history", "category_history"],
    "negative_history": ["item_negative", "category_negative"],
}

STAND_INS = (
    "horovod",
    "horovod.tensorflow",
    "horovod.tensorflow.mpi_ops",
    "dllogger",
    "sim.utils.gpu_affinity",
)


def published_module(code: Path) -> Any:
    """Import the published ``main.py``; what logs, sends and binds is not called."""
    for name in STAND_INS:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["horovod"].__dict__["tensorflow"] = sys.modules["horovod.tensorflow"]
    sys.modules["horovod.tensorflow.mpi_ops"].__dict__["Sum"] = None
    sys.modules["sim.utils.gpu_affinity"].__dict__["set_affinity"] = None
    sys.path.insert(0, str(code))
    import main

    return main


def random_batch(rows: int) -> Any:
    """Full histories of random ids, as the published loader gives them."""
    random = np.random.default_rng(1)

    def ids(name: str, *shape: int) -> tf.Tensor:
        largest = LARGEST[name.partition("_")[0]]
        return tf.constant(random.integers(1, largest + 1, (rows, *shape)))

    given = {
        "user_features": {name: ids(name) for name in CHANNELS["user_features"]},
        "target_item_features": {name: ids(name) for name in CHANNELS["target_item_features"]},
        "long_sequence_mask": tf.ones([rows, LONG]),
        "short_sequence_mask": tf.ones([rows, SHORT]),
    }
    for key, channel, length in (
        ("long_sequence_features", "positive_history", LONG),
        ("short_sequence_features", "positive_history", SHORT),
        ("short_neg_sequence_features", "negative_history", SHORT),
    ):
        given[key] = {name: ids(name, length) for name in CHANNELS[channel]}
    return given, tf.constant(random.integers(0, 2, rows))


def published_hlo(code: Path) -> str:
    """Return XLA's program of the step before it is optimized, in float16."""
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    main = published_module(code)
    features = {
        name: {"dtype": "int64", "cardinality": LARGEST.get(name.partition("_")[0])}
        for names in CHANNELS.values()
        for name in names
    }
    spec = main.FeatureSpec(features, {}, CHANNELS, {}, "")
    widths = {"stage_1": [200], "stage_2": [200, 80], "aux": [100, 50]}
    options = {"feature_spec": spec, "mlp_hidden_dims": widths, "embedding_dim": 16}
    model, model_fn = main.build_model_and_loss(
        {**options, "dropout_rate": -1, "model_type": "sim"}
    )
    adam = main.tfa.optimizers.AdamW(learning_rate=0.01, weight_decay=0)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(adam, dynamic=True)

    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            _, losses = model_fn(batch, training=True)
            scaled = optimizer.get_scaled_loss(losses["total_loss"])
        gradients = tape.gradient(scaled, model.trainable_variables)
        gradients = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        gradients = optimizer.get_unscaled_gradients(gradients)
        pairs = zip(gradients, model.trainable_variables, strict=True)
        optimizer.apply_gradients([(g, v) for g, v in pairs if g is not None])
        return losses

    tf.config.run_functions_eagerly(True)
    step(random_batch(4))  # makes the weights
    tf.config.run_functions_eagerly(False)
    compiled = tf.function(step, jit_compile=True, autograph=False)
    return str(compiled.experimental_get_compiler_ir(random_batch(BATCH))(stage="hlo"))


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(published_hlo(Path(sys.argv[1])))
