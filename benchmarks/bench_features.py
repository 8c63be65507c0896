"""What features without ids cost: `preprocess log --features`, and SIM's training step with them.

    .venv/bin/python benchmarks/bench_features.py [--rows 500000] [--rounds 3]

The log has labels, five numbers (three of items, one of users, one of interactions), a list of
genres and a vector of 64 numbers in each row. Preprocessing runs as a process of its own, by turns
with the same log without them, with its labels and without: processor seconds, start included. SIM
of published size trains by turns in one process on the dataset with and without them; the feed is
part of it.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import tensorflow as tf  # noqa: E402
from measuring.records import Recording  # noqa: E402
from measuring.timing import in_turn  # noqa: E402
from merlin.schema import Schema  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.parallel.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.parallel.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.parallel.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402

USERS_OF, ITEMS, WIDTH, BATCH, STEPS, WARM_UP = 60, 20_000, 64, 4096, 3, 4
FEATURES = """
features:
  n1: {type: number, of: item, operators: [FillMedian, LogOp, Normalize]}
  n2: {type: number, of: item, operators: [Normalize]}
  n3: {type: number, of: item, operators: [Normalize]}
  n4: {type: number, of: user, operators: [Normalize]}
  n5: {type: number, of: interaction, operators: [Normalize]}
  genres: {type: list, of: item, longest: 4}
  look: {type: vector, of: item, size: 64}
"""
COLUMNS = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")
NUMBERS_AND_LISTS = ("user_numerical", "target_item_numerical", "target_item_lists")


def write_log(directory: Path, rows: int) -> None:
    """Write the log, with and without features that are no ids."""
    random = np.random.default_rng(0)
    users = rows // USERS_OF
    who = random.integers(0, users, rows)
    what = np.minimum((random.pareto(1.2, rows) * 200).astype(int), ITEMS - 1)
    looks = random.normal(size=(ITEMS, WIDTH)).astype(np.float32)
    genres = [random.choice(20, random.integers(1, 5), replace=False) for _ in range(ITEMS)]
    names = np.array(["|".join(f"g{genre}" for genre in of_item) for of_item in genres])
    plain = {
        "who": pa.array([f"u{user}" for user in who]),
        "what": pa.array([f"i{item}" for item in what]),
        "when": pa.array(np.sort(random.integers(1_700_000_000, 1_710_000_000, rows))),
        "clicked": pa.array((random.random(rows) < 0.4).astype(np.int8)),
        "brand": pa.array([f"b{item % 300}" for item in what]),
    }
    flat = pa.array(looks[what].reshape(-1))
    vectors = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * WIDTH), flat)
    more = {
        "n1": random.lognormal(size=ITEMS)[what],
        "n2": random.normal(size=ITEMS)[what],
        "n3": random.random(ITEMS)[what],
        "n4": random.random(users)[who],
        "n5": random.random(rows),
        "genres": names[what],
        "look": vectors,
    }
    pq.write_table(pa.table(plain), directory / "plain.parquet", row_group_size=100_000)
    pq.write_table(pa.table({**plain, **more}), directory / "full.parquet", row_group_size=100_000)
    (directory / "features.yaml").write_text(FEATURES)


def preprocess(directory: Path, name: str, *options: str) -> float:
    """Preprocess once; gives the processor seconds."""
    log = directory / ("full.parquet" if name == "features" else "plain.parquet")
    command = [str(Path(sys.executable).parent / "merlin-sim"), "preprocess", "log", str(log)]
    command += [*COLUMNS, "--item_feature_columns", "brand", "--scheduler", "single", *options]
    command += ["--output_path", str(directory / name), "--overwrite"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bench_preprocessing(recording: Recording, directory: Path, rows: int, rounds: int) -> None:
    """Measure the three, by turns."""
    labels = ("--label_column", "clicked")
    kinds = {
        "plain": (),
        "labels": labels,
        "features": (*labels, "--features", str(directory / "features.yaml")),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, options in kinds.items():
            seconds[name].append(preprocess(directory, name, *options))
    recording.table(f"preprocess log, {rows:,} rows", "processor s", seconds, "plain")


def bench_training(recording: Recording, dataset: DatasetDirectory, rounds: int) -> None:
    """Train SIM with ids alone and with other features, by turns."""
    columns = {name for channel in NUMBERS_AND_LISTS for name in dataset.channels.get(channel, ())}
    kinds = {"ids alone": columns, "five numbers and a vector": {"genres"}, "and a list": set()}
    works, processor = {}, {name: [] for name in kinds}
    for kind, left_out in kinds.items():
        schema = Schema([column for column in dataset.schema if column.name not in left_out])
        works[kind] = Work(build_model("sim", schema), dataset, processor[kind])
    for work in works.values():
        work(WARM_UP)
    for found in processor.values():
        found.clear()
    recording.table("SIM, training", "samples/s", in_turn(works, rounds), "ids alone")
    recording.table("a step", "processor s", processor, "ids alone")


class Work:
    """Some training steps of a model, batches read from its own feed."""

    def __init__(self, model, dataset: DatasetDirectory, processor: list[float]) -> None:
        """Open the feed; ``processor`` gets processor seconds a step."""
        self._columns = list(model.training_columns)
        self._feed = open_loader(dataset, "train", self._columns, BATCH, Ranks(), shuffle=True)
        optimizer = make_optimizer("adam", model.trainable_variables, 0.01)
        self._step = TrainStep(model, optimizer, LossScale(False), Ranks())
        self._batches = iter(self._feed)
        self._processor = processor

    def __call__(self, steps: int = STEPS) -> int:
        """Train; gives how many samples."""
        begin, samples = time.process_time(), 0
        for _ in range(steps):
            batch = next(self._batches, None)
            if batch is None:
                self._batches = iter(self._feed)
                batch = next(self._batches)
            columns, labels = batch
            labels = next(iter(labels.values())) if isinstance(labels, dict) else labels
            labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
            result, _ = self._step.run_alone(columns, labels, None)
            float(result.losses[0])  # wait for it
            samples += int(tf.size(labels))
        self._processor.append((time.process_time() - begin) / steps)
        return samples


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    settings = {"rows": options.rows, "batch": BATCH, "rounds": options.rounds}
    recording = Recording("features", "Features beside ids", settings)
    with tempfile.TemporaryDirectory() as name:
        write_log(Path(name), options.rows)
        bench_preprocessing(recording, Path(name), options.rows, options.rounds)
        dataset = DatasetDirectory.open(Path(name) / "features")
        bench_training(recording, dataset, 2 * options.rounds)
    recording.end()


if __name__ == "__main__":
    main()
