"""Test AUC of `merlin-sim train` beside a plain Keras SIM trained by the published recipe.

    python benchmarks/bench_auc.py [--all | --only NAME] [--seeds N] [--epochs N] [--shuffle_plain]

Datasets come from `merlin-sim synthesize` and `preprocess`. Both sides have the published sizes,
Adam at 0.01, the same global batch and the same rows. The published recipe goes through the rows
in their stored order in every epoch; `--shuffle_plain` gives the plain model our order too.
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

from merlin_sim.feed.open_feed import open_feed  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402

COMMAND = str(Path(sys.executable).parent / "merlin-sim")


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


def make_dataset(case: Case, directory: Path) -> Path:
    """Go from raw logs to a dataset directory by the real commands."""
    raw, dataset = str(directory / "raw"), directory / "dataset"
    synthesize = [COMMAND, "synthesize", "--output", raw, "--seed", "7", *case.options.split()]
    preprocess = [COMMAND, "preprocess", "amazon-books", "--amazon_dataset_path", raw]
    for words in (synthesize, [*preprocess, "--output_path", str(dataset)]):
        subprocess.run(words, check=True, capture_output=True)
    return dataset


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
    train = open_feed(dataset, "train", columns, case.batch_size, ranks, shuffle=shuffle, seed=seed)
    test = open_feed(dataset, "test", columns, case.batch_size, ranks)
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


def compare(name: str, seeds: int, epochs: int, shuffle_plain: bool) -> None:
    """Print both sides' AUC by seed and epoch, the means, and the difference."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as directory:
        dataset = make_dataset(case, Path(directory))
        rows = {"train": 0, "test": 0}
        for mapping in rows:
            opened = DatasetDirectory.open(dataset)
            feed = open_feed(opened, mapping, [opened.channels["label"][0]], 1, Ranks())
            rows[mapping] = feed.plan(0).rows
        print(
            f"{name}: {case.title}; {rows['train']:,} + {rows['test']:,} rows, "
            f"batch {case.batch_size}, test AUC after each epoch",
            flush=True,
        )
        found: dict[str, list[list[float]]] = {"merlin-sim train": [], "plain, as published": []}
        for seed in range(1, seeds + 1):
            results = Path(directory) / f"results-{seed}"
            mine = ours(dataset, case, seed, epochs, results)
            other = plain(dataset, case, seed, epochs, shuffle_plain)
            for title, values in zip(found, (mine, other), strict=True):
                found[title].append(values)
                shown = "  ".join(f"{value:.4f}" for value in values)
                print(f"  seed {seed}  {title:22} {shown}", flush=True)
    means = {title: np.mean(values, axis=0) for title, values in found.items()}
    for title, mean in means.items():
        print(f"  mean    {title:22} {'  '.join(f'{value:.4f}' for value in mean)}")
    mine, other = (np.array(values)[:, -1] for values in found.values())
    error = np.std(mine - other, ddof=1) / np.sqrt(seeds) if seeds > 1 else float("nan")
    print(
        f"  ours - published after the last epoch: {np.mean(mine - other):+.4f}"
        f" (standard error {error:.4f})",
        flush=True,
    )


def main() -> None:
    """Compare on every dataset asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--only", choices=sorted(CASES), default="demo")
    parser.add_argument("--all", action="store_true", help="every dataset, one after the other")
    parser.add_argument("--shuffle_plain", action="store_true")
    arguments = parser.parse_args()
    for name in CASES if arguments.all else [arguments.only]:
        compare(name, arguments.seeds, arguments.epochs, arguments.shuffle_plain)


if __name__ == "__main__":
    main()
