"""Test AUC of `merlin-sim train`, on both layouts, beside a plain Keras SIM as published.

    python benchmarks/bench_auc.py [--all | --only NAME] [--seeds N] [--epochs N] [--shuffle_plain]
        [--without_plain]

Datasets come from `merlin-sim synthesize` and `preprocess`. All sides have the published sizes,
Adam at 0.01, the same global batch and the same samples. The users layout shuffles stretches of a
user's samples, the samples layout single rows. The published recipe goes through the rows in their
stored order in every epoch; `--shuffle_plain` gives the plain model our order too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from baselines.plain_sim import PlainSIM, plain_step  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402

COMMAND = str(Path(sys.executable).parent / "merlin-sim")
SAMPLES, USERS, PLAIN = "merlin-sim, samples layout", "merlin-sim, users layout", "plain Keras"


class Case(NamedTuple):
    """A dataset to be synthesized, and the global batch to train it with."""

    title: str
    batch_size: int
    options: str


CASES = {
    "demo": Case(
        "the demo's readers",
        1024,
        "--users 700 --items 2000 --categories 20 --interests 3 --long_term 0.6 --short_term 0.2",
    ),
    "items": Case(
        "many items, each in few interactions",
        1024,
        "--users 600 --items 12000 --categories 20 --interests 3 --long_term 0.6 --short_term 0.2",
    ),
    "short": Case(
        "short histories, mostly padding",
        1024,
        "--users 1400 --items 2000 --categories 20 --interests 3 --long_term 0.6 --short_term 0.2"
        " --mean_length 24 --short_users 0",
    ),
    "large": Case(
        "a batch that is a fifth of the data",
        8192,
        "--users 500 --items 1000 --categories 20 --interests 3 --long_term 0.6 --short_term 0.2",
    ),
}


def make_datasets(case: Case, directory: Path) -> dict[str, Path]:
    """Go from raw logs to a dataset directory of each layout by the real commands."""
    raw = str(directory / "raw")
    synthesize = [COMMAND, "synthesize", "--output", raw, "--seed", "7", *case.options.split()]
    subprocess.run(synthesize, check=True, capture_output=True)
    preprocess = [COMMAND, "preprocess", "amazon-books", "--amazon_dataset_path", raw]
    datasets = {layout: directory / layout for layout in ("samples", "users")}
    for layout, path in datasets.items():
        options = ["--layout", layout, "--output_path", str(path)]
        subprocess.run([*preprocess, *options], check=True, capture_output=True)
    return datasets


def ours(dataset: Path, case: Case, seed: int, epochs: int, results: Path) -> list[float]:
    """Run `merlin-sim train`; return the test AUC after each epoch."""
    words = [COMMAND, "train", "--dataset_dir", str(dataset), "--results_dir", str(results)]
    words += ["--global_batch_size", str(case.batch_size), "--epochs", str(epochs)]
    subprocess.run([*words, "--seed", str(seed)], check=True, capture_output=True)
    entries = map(json.loads, (results / "log.json").read_text().splitlines())
    return [entry["test_auc"] for entry in entries if entry["type"] == "epoch"]


def plain(path: Path, case: Case, seed: int, epochs: int, shuffle: bool) -> list[float]:
    """Train the plain model as published; return the test AUC after each epoch."""
    tf.keras.utils.set_random_seed(seed)
    dataset = DatasetDirectory.open(path)
    columns, ranks = dataset.schema.column_names, Ranks()
    train = open_loader(
        dataset, "train", columns, case.batch_size, ranks, shuffle=shuffle, seed=seed
    )
    test = open_loader(dataset, "test", columns, case.batch_size, ranks)
    features = dataset.spec.feature_spec
    names = ("item_id_trgt", "cat_id_trgt", "user_id")
    model = PlainSIM(*(int(features[name].cardinality) for name in names))
    step, predict = plain_step(model), tf.function(model, reduce_retracing=True)
    found = []
    for epoch in range(epochs):
        train.start_at(epoch)
        for batch, labels in train:
            step(batch, labels)
        auc = tf.keras.metrics.AUC(num_thresholds=8000, from_logits=True)
        test.start_at(0)
        for batch, labels in test:
            auc.update_state(tf.reshape(labels, [-1, 1]), predict(batch))
        found.append(float(auc.result()))
    return found


def compare(name: str, seeds: int, epochs: int, plain_too: bool, shuffle_plain: bool) -> None:
    """Print each side's AUC by seed and epoch, the means, and the differences."""
    case = CASES[name]
    found: dict[str, list[list[float]]] = {SAMPLES: [], USERS: []}
    if plain_too:
        found[PLAIN] = []
    with tempfile.TemporaryDirectory() as directory:
        datasets = make_datasets(case, Path(directory))
        opened = DatasetDirectory.open(datasets["samples"])
        label = opened.channels["label"][0]
        train, test = (
            open_loader(opened, mapping, [label], 1, Ranks()).plan(0).rows
            for mapping in ("train", "test")
        )
        print(
            f"{name}: {case.title}; {train:,} + {test:,} rows, batch {case.batch_size}, "
            "test AUC after each epoch",
            flush=True,
        )
        for seed in range(1, seeds + 1):
            for title in found:
                if title == PLAIN:
                    values = plain(datasets["samples"], case, seed, epochs, shuffle_plain)
                else:
                    layout = "users" if title == USERS else "samples"
                    results = Path(directory) / f"results-{layout}-{seed}"
                    values = ours(datasets[layout], case, seed, epochs, results)
                found[title].append(values)
                shown = "  ".join(f"{value:.4f}" for value in values)
                print(f"  seed {seed}  {title:28} {shown}", flush=True)
    for title, values in found.items():
        print(f"  mean    {title:28} {'  '.join(f'{v:.4f}' for v in np.mean(values, axis=0))}")
    tell_difference("users - samples", found[USERS], found[SAMPLES])
    if plain_too:
        tell_difference("samples - published", found[SAMPLES], found[PLAIN])


def tell_difference(title: str, one: list[list[float]], other: list[list[float]]) -> None:
    """Print how far apart two sides are after the last epoch, seed by seed."""
    apart = np.array(one)[:, -1] - np.array(other)[:, -1]
    error = np.std(apart, ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else float("nan")
    print(f"  {title}: {np.mean(apart):+.4f} (standard error {error:.4f})", flush=True)


def main() -> None:
    """Compare on every dataset asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--only", choices=sorted(CASES), default="demo")
    parser.add_argument("--all", action="store_true", help="every dataset, one after the other")
    parser.add_argument("--shuffle_plain", action="store_true")
    parser.add_argument("--without_plain", action="store_true", help="the two layouts alone")
    given = parser.parse_args()
    for name in CASES if given.all else [given.only]:
        compare(name, given.seeds, given.epochs, not given.without_plain, given.shuffle_plain)


if __name__ == "__main__":
    main()
