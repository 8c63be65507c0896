"""What the tests of tests/gpu/ ask of a process that sees a GPU; prints one line of JSON."""

from __future__ import annotations

import importlib
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
    places = set()
    for where in ("gpu", "cpu"):
        loader = open_loader(dataset, "train", columns, 32, Ranks(), shuffle=True, seed=4)
        if where == "cpu":
            loader.device = "cpu"
        batches[where] = []
        for inputs, labels in loader:
            if where == "gpu":
                places |= {tensor.device.rpartition("/device:")[2] for tensor in inputs.values()}
            arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
            batches[where].append({**arrays, "": labels.numpy()})
    same = all(
        np.array_equal(ours[name], theirs[name])
        for ours, theirs in zip(batches["gpu"], batches["cpu"], strict=True)
        for name in theirs
    )
    return {"same": same, "batches": len(batches["cpu"]), "places": sorted(places)}


def arrays(library: str = "cupy") -> dict[str, Any]:
    """Compare the array code of preprocessing on cupy and on numpy."""
    from merlin_sim.foundation.row_numbers import for_each_element
    from merlin_sim.schemas.population import Population
    from merlin_sim.workflows.behaviour.interaction_roles import roles_of_labels, sample_places
    from merlin_sim.workflows.engine.backend import pad_left
    from merlin_sim.workflows.operators.sample_arrays import (
        cut_prefixes,
        cut_taken,
        draw_negatives,
        order_of_samples,
        select_prefixes,
    )

    random = np.random.default_rng(7)
    lengths = random.integers(0, 40, 300)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = random.integers(1, 60, offsets[-1])
    users = random.integers(1, 2**40, 300)
    clicked = random.integers(0, 2, offsets[-1])
    population = Population.of_counts(np.bincount(values, minlength=60))
    results = []
    for xp in (np, importlib.import_module(library)):
        u, o, v, ends = (xp.asarray(array) for array in (users, offsets, values, lengths))
        rows, positions = select_prefixes(u, xp.minimum(ends, 1), ends, 5, 1, 3, xp)
        targets, history, ends = cut_prefixes(v, o, rows, positions, 10, xp)
        found = sample_places(roles_of_labels(xp.asarray(clicked)), o, xp)
        lists = (v, found.places, v[xp.asarray(clicked) == 1], found.before, found.positives)
        cut = cut_taken(*lists, found.begins, found.offsets, rows, positions, 10, xp)
        order = order_of_samples(u[rows], positions, cut[1], 5, 2, xp)
        drawn = draw_negatives(u[rows], positions, cut[1], cut[0], *cut[2:], order, 2, 5,
                               population, xp)  # fmt: skip
        padded = pad_left(history, ends, 12, xp)
        spread = for_each_element(xp.arange(300), o, xp)
        found = [rows, positions, targets, history, ends, *cut, order, *drawn, *padded, spread]
        results.append([array.get() if hasattr(array, "get") else array for array in found])
    return {"same": all(map(np.array_equal, *results)), "rows": len(results[0][0])}


def memory() -> dict[str, Any]:
    """Take the GPU as a run does, and tell what TensorFlow holds of it then."""
    from merlin_sim.foundation.gpus import look
    from merlin_sim.foundation.ranks import local_rank
    from merlin_sim.ranks.own_gpu import take
    from merlin_sim.scripts.options.devices import settle_training

    gpus = look()
    place = take(gpus, local_rank())
    told = settle_training(gpus)
    import tensorflow as tf

    from merlin_sim.ranks import collectives
    from merlin_sim.training.runs import run  # noqa: F401  # imports Merlin

    collectives.start()
    with tf.device("GPU:0"):
        tf.reduce_sum(tf.ones([1024])).numpy()
    import cudf

    total = int(cudf.Series([1, 2, 3]).sum())
    held = tf.config.experimental.get_memory_info("GPU:0")["peak"]
    seen = len(tf.config.list_physical_devices("GPU"))
    return {"place": place, "told": told, "seen": seen, "held": held, "sum": total}


if __name__ == "__main__":
    task = {"feed": feed, "arrays": arrays, "memory": memory}[sys.argv[1]]
    print(json.dumps(task(*sys.argv[2:])))
