"""Make the golden cases anew out of NVIDIA's published code, of which nothing is kept here.

    git clone https://github.com/NVIDIA/DeepLearningExamples PATH
    .venv/bin/python tests/models/golden/make.py PATH/TensorFlow2/Recommendation

The folder has ``SIM`` and ``DLRM_and_DCNv2`` in it. Every file names the commit that last changed
the published folder, where git knows it, and the SHA-256 of its Python files. Weights and ids are
drawn here, by a seed for each case; weights are numbers of 16 bits, which float32 holds exactly.
Outputs, losses and gradients are the published models'. ``config`` says what is of note in a case.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

BATCH, SHORT, TOP_K = 8, 5, 4
MLP = {"stage_one": [7], "stage_two": [9, 6], "classifier": [9, 6], "aux": [8, 5]}
NO_LENGTHS = [0, 1, 0, 1, 4, 6, 9, 13]
SAME_NUMBERS = (
    "The published top-k is filled up with padding, the product's never is; as vectors of padding "
    "are zeros, the numbers are the same."
)
PADDED = (
    "Published layers run over padding as over zeros, and where a history is all padding they "
    "attend to its zeros alike; so does the product."
)
HISTORIES = {
    "din_dot": {"model_type": "din", "attention": "dot"},
    "din_activation_unit": {"model_type": "din", "attention": "activation_unit"},
    "din_length_0_and_1": {
        "model_type": "din", "attention": "dot", "lengths": NO_LENGTHS, "note": PADDED,
    },
    "dien": {"model_type": "dien"},
    "dien_length_0_and_1": {"model_type": "dien", "lengths": NO_LENGTHS, "note": PADDED},
    "sim": {"model_type": "sim"},
    "sim_fewer_than_top_k": {
        "model_type": "sim", "lengths": [SHORT + n for n in (1, 2, 3, 1, 2, 3, 4, 5)],
        "note": SAME_NUMBERS,
    },
    "sim_length_0_and_1": {
        "model_type": "sim", "lengths": NO_LENGTHS, "note": f"{SAME_NUMBERS} {PADDED}",
    },
    "sim_one_user": {
        "model_type": "sim", "batch": 24, "users": 1,
        "note": "The published model has the user's row once for each candidate.",
    },
}  # fmt: skip
ROWS = {
    "dlrm": {"model": "dlrm"},
    "dcnv2_low_rank": {"model": "dcnv2", "cross_layer_projection_dim": 4},
    "dcnv2_full_rank": {"model": "dcnv2", "cross_layer_projection_dim": None},
}
TABLES_NOTE = (
    "Layers and interaction are published (nn/dense_model.py). Vectors are gathered here: the "
    "published tables are of NVIDIA's distributed_embeddings, which has no build for a CPU."
)


def provenance(folder: Path) -> dict[str, str | None]:
    """Name the published code: its commit, where git knows it, and what its files hold."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    git = ["git", "-C", str(folder)]
    # A folder inside another repository has no commit of its own there.
    found = subprocess.run([*git, "log", "-1", "--format=%H", "--", "."], capture_output=True)
    changed = subprocess.run([*git, "status", "--porcelain", "--", "."], capture_output=True)
    commit = found.stdout.decode().strip()
    return {
        "code": f"NVIDIA/DeepLearningExamples TensorFlow2/Recommendation/{folder.name}",
        "commit": commit if commit and not changed.stdout else None,
        "sha256_of_python_files": digest.hexdigest(),
    }


def save(path: Path, config: dict, arrays: dict[str, dict]) -> None:
    """Write a case: weights in 16 bits, which hold them exactly."""
    flat = {
        f"{kind}/{name}": np.asarray(a) for kind, of in arrays.items() for name, a in of.items()
    }
    flat = {n: a.astype(np.float16) if n.startswith("weight/") else a for n, a in flat.items()}
    np.savez_compressed(path, config=json.dumps(config), **flat)
    print(f"{path.name}: {path.stat().st_size // 1024} KB")


def draw_weights(chance: np.random.Generator, roles: dict[str, tf.Variable]) -> None:
    """Give every variable numbers of 16 bits."""
    for variable in roles.values():
        drawn = 0.5 * chance.standard_normal(variable.shape)
        variable.assign(drawn.astype(np.float16).astype(np.float32))


def dense_roles(role: str, layers: list) -> dict[str, tf.Variable]:
    """Name the weights of layers in a row."""
    kinds = {"dense": "kernel bias", "prelu": "alpha"}
    roles = {}
    for kind, names in kinds.items():
        of_kind = [layer for layer in layers if all(hasattr(layer, n) for n in names.split())]
        for index, layer in enumerate(of_kind):
            for name in names.split():
                roles[f"{role}.{kind}_{index}.{name}"] = getattr(layer, name)
    return roles


def unit_roles(role: str, unit: object) -> dict[str, tf.Variable]:
    """Name the weights of an attention's activation unit."""
    return dense_roles(role, [unit.dense1, unit.dense2, unit.linear])


def interest_roles(block: object) -> dict[str, tf.Variable]:
    """Name the weights of interest extraction and evolution."""
    unit, cell = block.item_item_interaction, block.layer_2.internal_rnn.cell
    roles = {
        "interest.attention.item_dense.kernel": unit.item_dense.kernel,
        "interest.attention.item_dense.bias": unit.item_dense.bias,
        "interest.attention.item_prelu.alpha": unit.item_prelu.alpha,
    } | unit_roles("interest.attention", unit)
    for name in ("kernel", "recurrent_kernel", "bias"):
        roles[f"interest.gru.{name}"] = getattr(block.layer_1.cell, name)
    for part, layer in (("gates", cell._gate_linear), ("candidate", cell._candidate_linear)):
        roles[f"interest.augru.{part}.kernel"] = layer.kernel
        roles[f"interest.augru.{part}.bias"] = layer.bias
    return roles


def history_roles(model: object, config: dict) -> dict[str, tf.Variable]:
    """Name every weight of a published DIN, DIEN or SIM that takes part."""
    names = [f"{kind}_{n}.table" for kind in ("user", "item") for n in range(2)]
    tables = [group.embedding_table for group in model.variable_embeddings_groups]
    roles = dict(zip(names, tables, strict=True))
    if config["model_type"] == "sim":
        roles |= dense_roles("stage_one", model.stage_one_classifier.layers)
        roles |= dense_roles("stage_two", model.stage_two_classifier.layers)
        roles |= dense_roles("aux", model.stage_two_auxiliary_net.layers)
        return roles | interest_roles(model.stage_two_item_seq_interaction)
    roles |= dense_roles("classifier", model.classificationMLP.layers)
    if config["model_type"] == "dien":
        return (
            roles
            | dense_roles("aux", model.auxiliary_net.layers)
            | interest_roles(model.dien_block)
        )
    unit = model.item_seq_interaction.item_item_interaction
    return roles | (unit_roles("attention", unit) if hasattr(unit, "linear") else {})


def make_history_model(config: dict, spec: object) -> object:
    """Make a published model."""
    from sim.models.dien_model import DIENModel
    from sim.models.din_model import DINModel
    from sim.models.sim_model import SIMModel

    mlp, dim = config["mlp"], config["embedding_dim"]
    if config["model_type"] == "din":
        return DINModel(spec, mlp["classifier"], dim, config["attention"])
    if config["model_type"] == "dien":
        return DIENModel(spec, {"classifier": mlp["classifier"], "aux": mlp["aux"]}, dim)
    dims = {"stage_1": mlp["stage_one"], "stage_2": mlp["stage_two"], "aux": mlp["aux"]}
    return SIMModel(spec, dims, dim, k=config["top_k"])


def draw_histories(chance: np.random.Generator, config: dict) -> dict[str, np.ndarray]:
    """Draw a batch of ids: histories of the lengths asked for, padded on the left."""
    rows, length = config["batch"], config["long_length"] + SHORT
    lengths = config["lengths"] or chance.integers(SHORT + TOP_K, length + 1, rows).tolist()
    is_real = np.arange(length) >= length - np.array(lengths)[:, None]
    drawn = {}
    for index, largest in enumerate(config["user_cardinalities"]):
        drawn[f"user_{index}"] = chance.integers(1, largest + 1, rows)
    for index, largest in enumerate(config["item_cardinalities"]):
        drawn[f"item_{index}"] = chance.integers(1, largest + 1, rows)
        for kind in ("hist", "neg_hist"):
            ids = chance.integers(1, largest + 1, (rows, length)) * is_real
            drawn[f"item_{index}_{kind}"] = ids
    if config["users"] == 1:
        targets = {"item_0", "item_1"}
        drawn = {n: a if n in targets else np.repeat(a[:1], rows, 0) for n, a in drawn.items()}
    return drawn | {"label": chance.integers(0, 2, rows)}


def history_case(name: str, asked: dict, published: dict, path: Path) -> None:
    """Run a published DIN, DIEN or SIM."""
    from sim.data.dataloader import _remap_column_values_tfrecord
    from sim.data.feature_spec import FeatureSpec
    from sim.utils.losses import build_sim_loss_fn, dien_auxiliary_loss_fn

    seed = zlib.crc32(name.encode())
    chance = np.random.default_rng(seed)
    config = {
        "model_type": None, "batch": BATCH, "users": None, "long_length": 12, "short_length": SHORT,
        "embedding_dim": 2, "top_k": TOP_K, "attention": None, "lengths": None,
        "user_cardinalities": [12, 7], "item_cardinalities": [32, 18], "mlp": MLP, "note": "",
        "seed": seed, "published": published,
    } | asked  # fmt: skip
    length = config["long_length"] + SHORT
    channels = {
        "label": ["label"],
        "user_features": ["user_0", "user_1"],
        "target_item_features": ["item_0", "item_1"],
        "positive_history": ["item_0_hist", "item_1_hist"],
        "negative_history": ["item_0_neg_hist", "item_1_neg_hist"],
    }
    features = {}
    for kind in ("user", "item"):
        for index, largest in enumerate(config[f"{kind}_cardinalities"]):
            for suffix in ("", "_hist", "_neg_hist"):
                features[f"{kind}_{index}{suffix}"] = {
                    "cardinality": largest,
                    "dimensions": [length],
                }
    spec = FeatureSpec(features, {}, channels, {}, "")
    inputs = draw_histories(chance, config)
    batch, labels = _remap_column_values_tfrecord(
        {n: tf.constant(a) for n, a in inputs.items()}, spec, config["long_length"]
    )
    model = make_history_model(config, spec)
    model(batch)  # creates the weights
    roles = history_roles(model, config)
    draw_weights(chance, roles)
    cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True)
        if config["model_type"] == "sim":
            logits = outputs["stage_one_logits"], outputs["stage_two_logits"]
            classification = build_sim_loss_fn()(labels, *logits)
        else:
            classification = cross_entropy(labels, outputs["logits"])
        auxiliary = tf.constant(0.0)
        if config["model_type"] != "din":
            probabilities = outputs["aux_click_probs"], outputs["aux_noclick_probs"]
            mask = batch["short_sequence_mask"][:, 1:]
            auxiliary = dien_auxiliary_loss_fn(*probabilities, mask=mask)
        total = classification + auxiliary
    gradients = tape.gradient(total, roles)
    arrays = {
        "input": inputs,
        "weight": roles,
        "output": outputs,
        "loss": {"total": total, "classification": classification, "aux": auxiliary},
        "grad": {role: tf.convert_to_tensor(g) for role, g in gradients.items()},
    }
    save(path, config, arrays)


def row_case(name: str, asked: dict, published: dict, path: Path) -> None:
    """Run the published layers of DLRM or DCNv2 over gathered vectors."""
    import horovod.tensorflow as hvd
    from nn.dense_model import DenseModel

    hvd.init()

    seed = zlib.crc32(name.encode())
    chance = np.random.default_rng(seed)
    rows, numbers, cardinalities, dim = 12, 13, [7, 40, 3, 90, 11], 8
    config = {
        "numerical": numbers, "cardinalities": cardinalities,
        "embedding_dim": [dim] * len(cardinalities), "bottom_mlp_dims": [16, dim],
        "top_mlp_dims": [16, 9, 1], "num_cross_layers": None if asked["model"] == "dlrm" else 3,
        "cross_layer_projection_dim": None, "note": TABLES_NOTE, "seed": seed,
        "published": published,
    } | asked  # fmt: skip
    inputs = {
        "numerical": chance.standard_normal((rows, numbers)).astype(np.float32),
        "categorical": np.stack([chance.integers(0, n, rows) for n in cardinalities], axis=1),
        "label": chance.integers(0, 2, rows).astype(np.float32),
    }
    model = DenseModel(
        interaction="dot_tensorflow" if asked["model"] == "dlrm" else "cross",
        num_numerical_features=numbers, categorical_cardinalities=cardinalities, transpose=False,
        batch_size=rows,
        **{n: config[n] for n in ("embedding_dim", "bottom_mlp_dims", "top_mlp_dims",
                                  "num_cross_layers", "cross_layer_projection_dim")},
    )  # fmt: skip
    model.force_initialization(rows, training=True)
    tables = [tf.Variable(tf.zeros([n, dim])) for n in cardinalities]
    roles = {f"table_{index}": table for index, table in enumerate(tables)}
    roles |= dense_roles("bottom", model.bottom_mlp_layers) | dense_roles("top", model.top_mlp)
    for index, cross in enumerate(getattr(model.interact_op, "cross_layers", [])):
        low_rank = hasattr(cross, "_dense_u")
        if low_rank:
            roles[f"cross_{index}.u.kernel"] = cross._dense_u.kernel
        v = cross._dense_v if low_rank else cross._dense
        roles |= {f"cross_{index}.v.kernel": v.kernel, f"cross_{index}.v.bias": v.bias}
    draw_weights(chance, roles)
    cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        ids = inputs["categorical"]
        vectors = [tf.gather(table, ids[:, index]) for index, table in enumerate(tables)]
        joined = tf.reshape(tf.stack(vectors, axis=1), [-1])
        logits = model(tf.constant(inputs["numerical"]), joined, training=True)
        total = cross_entropy(inputs["label"][:, None], logits)
    gradients = tape.gradient(total, roles)
    # First kernels have rows for numbers that are padding, to a multiple of 8: zeros come in.
    cut = {
        "bottom.dense_0.kernel": numbers,
        "top.dense_0.kernel": model._get_top_mlp_input_features(),
    }
    arrays = {
        "input": inputs,
        "weight": {role: v.numpy()[: cut.get(role)] for role, v in roles.items()},
        "output": {"logits": logits},
        "loss": {"total": total},
        "grad": {r: tf.convert_to_tensor(g).numpy()[: cut.get(r)] for r, g in gradients.items()},
    }
    save(path, config, arrays)


def main() -> None:
    """Make all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("published", type=Path, help="the folder that has SIM and DLRM_and_DCNv2")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    made = (("SIM", HISTORIES, history_case), ("DLRM_and_DCNv2", ROWS, row_case))
    for folder, cases, make in made:
        sys.path.insert(0, str(options.published / folder))
        published = provenance(options.published / folder)
        for name, asked in cases.items():
            make(name, asked, published, options.output / f"{name}.npz")


if __name__ == "__main__":
    main()
