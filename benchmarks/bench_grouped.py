"""SIM's training step on the same samples as rows and as users x candidates, by length.

    .venv/bin/python benchmarks/bench_grouped.py [--length 100] [--length 1000] [--inference]

256 users of 16 samples each, as the feed makes them: at 8 places one after the other of the user's
history, a positive and its twin at each. Against the same 4,096 samples as plain rows, in our step
and in that of the plain Keras model. At length 1000
rows go in batches of 512: 4,096 of them take more memory than a machine may have. Peak memory is
that of each alternative's own process.

With ``--inference``: `merlin-sim inference` of test users with 100 candidates each, a positive and
99 negatives, as users x 100 and as rows, beside the plain Keras model's forward pass on rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from baselines.plain_sim import PlainSIM, plain_step  # noqa: E402
from measuring.own_process import OwnProcess, Works  # noqa: E402
from measuring.timing import in_turn, show  # noqa: E402
from rows.sim_rows import LISTS, SCALARS, describe, largest_ids  # noqa: E402
from rows.user_rows import CATEGORIES, ITEMS, write_users  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.schemas.translation.merlin_schema import to_merlin_schema  # noqa: E402
from merlin_sim.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.steps.train_step import TrainStep  # noqa: E402

USERS, CANDIDATES, SHORT, ROUNDS = 256, 16, 10, 5
PEAK = "peak memory"
COMMAND = str(Path(sys.executable).parent / "merlin-sim")
TEST_USERS, TEST_CANDIDATES, WARM_UP = 600, 100, 3

Arrays = dict[str, np.ndarray]


def users_and_candidates(length: int) -> tuple[Arrays, np.ndarray]:
    """Make a batch of the users layout: ids skewed as popularity is, every place taken."""
    random = np.random.default_rng(1)

    def ids(name: str, *shape: int) -> np.ndarray:
        skewed = (random.random(shape) ** 4 * largest_ids()[name]).astype(np.int64)
        return 1 + (skewed * 7919) % largest_ids()[name]

    columns = {"user_id": ids("user_id", USERS)}
    columns |= {name: ids(name, USERS, CANDIDATES) for name in SCALARS[1:]}
    columns |= {name: ids(name, USERS, length + CANDIDATES // 2 - 1) for name in LISTS}
    ends = np.tile(np.arange(length, length + CANDIDATES // 2, dtype=np.int32), (USERS, 1))
    labels = np.tile(np.array([0, 1], np.float32), (USERS, CANDIDATES // 2))
    return {**columns, "history_end": ends}, labels


def as_rows(columns: Arrays, labels: np.ndarray, length: int) -> tuple[Arrays, np.ndarray]:
    """Give each sample a row with its own copy of its window."""
    rows = {"user_id": columns["user_id"].repeat(CANDIDATES)}
    rows |= {name: columns[name].reshape(-1) for name in SCALARS[1:]}
    for name in LISTS:
        windows = np.lib.stride_tricks.sliding_window_view(columns[name], length, axis=1)
        rows[name] = windows.reshape(-1, length).repeat(2, axis=0)
    return rows, labels.reshape(-1)


def batches_of(columns: Arrays, labels: np.ndarray, most: int) -> list[tuple[dict, tf.Tensor]]:
    """Cut a batch."""
    return [
        (
            {name: tf.constant(column[begin : begin + most]) for name, column in columns.items()},
            tf.constant(labels[begin : begin + most]),
        )
        for begin in range(0, len(labels), most)
    ]


def trainer(length: int) -> TrainStep:
    """Build the model and its compiled step."""
    schema = to_merlin_schema(describe(("part.parquet",), length))
    model = build_model("sim", schema, long_seq_length=length - SHORT)
    optimizer = make_optimizer("adam", model.trainable_variables, 0.01)
    return TrainStep(model, optimizer, LossScale(False), Ranks())


def peak() -> int:
    """Return this process's largest memory so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def works(name: str, length: int, most: int, kind: str) -> Works:
    """Make one alternative: an epoch of the 4,096 samples."""
    columns, labels = users_and_candidates(length)
    if kind != "grouped":
        columns, labels = as_rows(columns, labels, length)
    batches = batches_of(columns, labels, most)
    if kind == "plain":
        step = plain_step(PlainSIM(long=length - SHORT))
    else:
        train = trainer(length)

        def step(columns, labels):
            return train(columns, labels, 1.0).losses

    def run() -> int:
        for batch in batches:
            step(*batch).numpy()
        return USERS * CANDIDATES

    return {name: run, PEAK: peak}


def measure(length: int, most: int) -> None:
    """Time the alternatives in turn."""
    names = {
        f"{USERS} users x {CANDIDATES}": (USERS, "grouped", True),
        f"rows, batch {most}": (most, "rows", True),
        f"plain Keras, rows, batch {most}": (most, "plain", False),
    }
    alternatives, peaks = {}, {}
    for name, (size, kind, as_command) in names.items():
        made = OwnProcess(works, name, length, size, kind, as_command=as_command).works
        alternatives[name], peaks[name] = made[name], made[PEAK]
    in_turn(alternatives, 1)
    rates = in_turn(alternatives, ROUNDS)
    title = f"SIM training step, length {length}, adam, {USERS * CANDIDATES} samples"
    show(title, rates, list(names)[-1])
    for name, tell in peaks.items():
        print(f"  {name:44} {tell() / 2**30:>12,.2f} GiB at most")


def inference_rate(directory: Path, candidates: int) -> float:
    """Run `merlin-sim inference` over all test samples, and return the samples/s that it tells."""
    with tempfile.TemporaryDirectory() as results:
        words = [COMMAND, "inference", "--model_type", "sim", "--dataset_dir", str(directory)]
        words += ["--candidates", str(candidates), "--global_batch_size", "4000", "--benchmark"]
        words += ["--benchmark_warmup_steps", str(WARM_UP), "--results_dir", results]
        subprocess.run(words, check=True, capture_output=True)
        entries = map(json.loads, (Path(results) / "log.json").read_text().splitlines())
        return [entry for entry in entries if entry["type"] == "inference"][-1]["throughput"]


def plain_inference(directory: Path, length: int) -> Works:
    """Make the plain model's forward pass over the same samples as rows, feed included."""
    dataset = DatasetDirectory.open(directory)
    names = [name for name in dataset.schema.column_names if not name.endswith("_neg")]
    feed = open_loader(dataset, "test", names, 4000, Ranks())
    model = PlainSIM(ITEMS, CATEGORIES, TEST_USERS, length - SHORT)
    forward = tf.function(model, reduce_retracing=True)

    def rate() -> float:
        begin = samples = 0
        for step, (columns, labels) in enumerate(feed):
            forward(columns).numpy()
            if step < WARM_UP:
                begin = time.perf_counter()
            else:
                samples += len(labels)
        return samples / (time.perf_counter() - begin)

    return {"rate": rate}


def measure_inference(length: int) -> None:
    """Time the alternatives in turn, each round in new processes."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "dataset"
        write_users(directory, TEST_USERS, length + 1, length, TEST_CANDIDATES - 1)
        plain = "plain Keras, rows"
        ways = {
            f"users x {TEST_CANDIDATES}": lambda: inference_rate(directory, TEST_CANDIDATES),
            "rows": lambda: inference_rate(directory, 1),
            plain: OwnProcess(plain_inference, directory, length).works["rate"],
        }
        found = [{name: rate() for name, rate in ways.items()} for _ in range(3)]
    rates = {name: statistics.median(rates[name] for rates in found) for name in ways}
    samples = TEST_USERS * TEST_CANDIDATES
    show(f"SIM inference, length {length}, {samples:,} samples", rates, plain)


def main() -> None:
    """Measure each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, action="append", help="of a history; 100 and 1000")
    parser.add_argument("--inference", action="store_true", help="of 100 candidates a test user")
    given = parser.parse_args()
    for length in given.length or [100, 1000]:
        if given.inference:
            measure_inference(length)
        else:
            measure(length, 4096 if length <= 100 else 512)


if __name__ == "__main__":
    main()
