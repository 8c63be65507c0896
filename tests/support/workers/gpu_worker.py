"""What the tests of tests/gpu/ ask of a process that sees a GPU; prints one line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def feed(directory: str) -> dict[str, Any]:
    """Compare the batches of a dataset directory on the GPU and on the CPU."""
    from merlin_sim.dataloader.open_loader import open_loader
    from merlin_sim.foundation.ranks import Ranks
    from merlin_sim.schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(Path(directory))
    columns = dataset.schema.column_names
    batches: dict[str, list[Any]] = {}
    devices = set()
    for where in ("gpu", "cpu"):
        loader = open_loader(dataset, "train", columns, 32, Ranks(), shuffle=True, seed=4)
        if where == "cpu":
            loader.device = "cpu"
        batches[where] = []
        for inputs, labels in loader:
            if where == "gpu":
                devices |= {tensor.device.rpartition("/device:")[2] for tensor in inputs.values()}
            arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
            batches[where].append({**arrays, "": labels.numpy()})
    same = all(
        np.array_equal(ours[name], theirs[name])
        for ours, theirs in zip(batches["gpu"], batches["cpu"], strict=True)
        for name in theirs
    )
    return {"same": same, "batches": len(batches["cpu"]), "devices": sorted(devices)}


def samples(directory: str, candidates: str = "1") -> dict[str, Any]:
    """Compare the samples of a dataset of users, made on the GPU and on the CPU."""
    import tensorflow as tf

    from merlin_sim.dataloader.open_loader import open_loader
    from merlin_sim.foundation.ranks import Ranks
    from merlin_sim.schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(Path(directory))
    columns = dataset.schema.column_names
    together = None if candidates == "1" else int(candidates)
    size = 32 * int(candidates)
    loader = open_loader(
        dataset, "train", columns, size, Ranks(), shuffle=True, seed=4, candidates=together
    )
    same, count, devices = [], 0, set()
    for given in loader.inputs():
        with tf.device("GPU:0"):
            ours = tf.nest.flatten(loader.make(given))
        with tf.device("CPU:0"):
            theirs = tf.nest.flatten(loader.make(given))
        devices |= {tensor.device.rpartition("/device:")[2] for tensor in ours}
        same += [np.array_equal(*both) for both in zip(ours, theirs, strict=True)]
        count += 1
    return {"same": all(same), "batches": count, "devices": sorted(devices)}


def keras(directory: str, source: str) -> dict[str, Any]:
    """Fit, evaluate and predict in Keras' loop, as a notebook does, where the model lies."""
    import tensorflow as tf

    import merlin_sim as ms

    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.keras.utils.set_random_seed(3)
    dataset = ms.DatasetDirectory.open(Path(directory), model="din")
    model = ms.DINModel.from_dataset(dataset, embedding_dim=4)
    model.compile(tf.keras.optimizers.Adam(0.01), metrics=[tf.keras.metrics.AUC(name="auc")])
    given = {"x": dataset, "batch_size": 64}
    if source == "loader":
        files = [str(file) for file in dataset.files("train")]
        table = ms.Dataset(files, engine="parquet", schema=dataset.schema)
        given = {"x": ms.RowLoader(table, batch_size=64, shuffle=False)}
    history = model.fit(**given, epochs=2, verbose=0).history
    results = model.evaluate(**given, verbose=0, return_dict=True)
    scores = np.ravel(model.predict(**given, verbose=0))
    devices = {v.device.rpartition("/device:")[2] for v in model.trainable_variables}
    return {
        "devices": sorted(devices),
        "losses": history["loss"],
        "results": [results["loss"], results["auc"]],
        "scores": scores.tolist(),
    }


def memory() -> dict[str, Any]:
    """Take the GPU as a run does, and report what TensorFlow holds of it then."""
    from merlin_sim.foundation.gpus import look
    from merlin_sim.foundation.ranks import local_rank
    from merlin_sim.parallel.ranks.own_gpu import take
    from merlin_sim.scripts.options.devices import settle_training

    gpus = look()
    device_id = take(gpus, local_rank())
    reported = settle_training(gpus)
    import tensorflow as tf

    from merlin_sim.parallel.ranks import collectives
    from merlin_sim.training.runs import run  # noqa: F401  # imports Merlin

    collectives.start()
    with tf.device("GPU:0"):
        tf.reduce_sum(tf.ones([1024])).numpy()
    import cudf

    total = int(cudf.Series([1, 2, 3]).sum())
    held = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    seen = len(tf.config.list_physical_devices("GPU"))
    return {"device_id": device_id, "reported": reported, "seen": seen, "held": held, "sum": total}


if __name__ == "__main__":
    task = {"feed": feed, "samples": samples, "keras": keras, "memory": memory}[sys.argv[1]]
    print(json.dumps(task(*sys.argv[2:])))
