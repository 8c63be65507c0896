"""DLRM: training step, ranks, feed, preprocessing, and how close its AUC comes to the best.

python benchmarks/bench_dlrm.py                     # all of them
python benchmarks/bench_dlrm.py step feed           # some of them
python benchmarks/bench_dlrm.py preprocess --rows_per_day 1000000
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from baselines.plain_dlrm import PlainDLRM, plain_step  # noqa: E402
from bench_preprocess import MAIN, measure  # noqa: E402
from measuring.own_process import OwnProcess, Works  # noqa: E402
from measuring.records import Recording  # noqa: E402
from measuring.timing import in_turn  # noqa: E402
from merlin.schema import ColumnSchema, Schema, Tags  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.parallel.steps.loss_scale import LossScale  # noqa: E402
from merlin_sim.parallel.steps.optimizers import make_optimizer  # noqa: E402
from merlin_sim.parallel.steps.train_step import TrainStep  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents  # noqa: E402
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec  # noqa: E402
from merlin_sim.schemas.spec_file import read_spec  # noqa: E402
from merlin_sim.training.evaluation.metrics import AUC  # noqa: E402
from merlin_sim.workflows.synthetic.click_days import (  # noqa: E402
    PUBLISHED_KEYS,
    PlantedClicks,
    clicks_of_day,
)
from merlin_sim.workflows.synthetic.raw_files import draw_ranks  # noqa: E402
from merlin_sim.workflows.transcoding.transcode import Transcoder  # noqa: E402

HERE = Path(__file__).parent
BATCH, ROWS_OF_TABLES, BATCHES, ROUNDS = 8192, 1_000_000, 4, 5
ROWS_PER_DAY, DAYS = 200_000, 5
SHARE = ROWS_OF_TABLES / (sum(PUBLISHED_KEYS) + len(PUBLISHED_KEYS))
CARDINALITIES = [max(2, round((keys + 1) * SHARE)) for keys in PUBLISHED_KEYS]


def draw_batches():
    """Draw the same batches in every process: ids by a power law."""
    random = np.random.default_rng(0)
    for _ in range(BATCHES):
        ids = [draw_ranks(rows, random, BATCH) - 1 for rows in CARDINALITIES]
        numbers = random.standard_normal((BATCH, 13)).astype(np.float32)
        labels = (random.random(BATCH) < 0.25).astype(np.float32)
        yield numbers, np.stack(ids, axis=1).astype(np.int32), labels


def dlrm_schema():
    """Describe 26 categories, 13 numbers and a label."""
    columns = [ColumnSchema("label", dtype="int8", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION])]
    for index, rows in enumerate(CARDINALITIES):
        domain = {"domain": {"min": 0, "max": rows - 1, "name": f"cat_{index}"}}
        tags = [Tags.CATEGORICAL]
        columns.append(ColumnSchema(f"cat_{index}", dtype="int32", tags=tags, properties=domain))
    for index in range(13):
        columns.append(ColumnSchema(f"num_{index}", dtype="float32", tags=[Tags.CONTINUOUS]))
    return Schema(columns)


def every_batch(work, batches):
    """Make a work of one step, with the next batch each time."""
    state = {"next": 0}

    def run() -> int:
        work(*batches[state["next"] % len(batches)])
        state["next"] += 1
        return BATCH

    return run


def our_steps(optimizer: str, policy: str = "float32") -> Works:
    """Make the step of this package's loop."""
    tf.keras.mixed_precision.set_global_policy(policy)
    model = build_model("dlrm", dlrm_schema())
    step = TrainStep(
        model,
        make_optimizer(optimizer, model.trainable_variables, 0.001),
        LossScale(False),
        Ranks(),
    )
    batches = []
    for numbers, ids, labels in draw_batches():
        columns = {f"num_{index}": tf.constant(numbers[:, index]) for index in range(13)}
        columns |= {f"cat_{index}": tf.constant(ids[:, index]) for index in range(ids.shape[1])}
        batches.append((columns, tf.constant(labels)))
    never, share = tf.constant(False), tf.constant(1.0)
    train = tf.function(lambda x, y: step.run(x, y, never, share).losses, autograph=False)
    return {optimizer: every_batch(lambda x, y: train(x, y).numpy(), batches)}


def plain_steps(optimizer: str) -> Works:
    """Make the plain model's step."""
    found = {"sgd": tf.keras.optimizers.SGD, "adam": tf.keras.optimizers.Adam}[optimizer]
    batches = [tuple(map(tf.constant, batch)) for batch in draw_batches()]
    works = {}
    for kind in ("rows", "dense"):
        step = plain_step(PlainDLRM(CARDINALITIES), found(0.001), kind == "dense")
        works[kind] = every_batch(lambda *batch, step=step: step(*batch).numpy(), batches)
    return works


def bench_step() -> None:
    """Time steps with SGD and Adam, each model in a process of its own."""
    settings = {"batch": BATCH, "rows_of_tables": ROWS_OF_TABLES, "embedding_dim": 128}
    recording = Recording("dlrm-step", "DLRM, training step", settings)
    for optimizer, ours in (("sgd", ("sgd", "adagrad")), ("adam", ("adam", "lazy_adam"))):
        baseline = f"plain Keras step, {optimizer}"
        plain = OwnProcess(plain_steps, optimizer).works
        works = {baseline: plain["rows"], f"{baseline}, dense gradients": plain["dense"]}
        for name in ours:
            works[f"step, {name}"] = OwnProcess(our_steps, name).works[name]
        bf16 = OwnProcess(our_steps, optimizer, "mixed_bfloat16").works[optimizer]
        works[f"step, {optimizer}, --precision bf16"] = bf16
        in_turn(works, 2)
        recording.table(optimizer, "samples/s", in_turn(works, ROUNDS), baseline)
    recording.end()


def benchmark_run(dataset: Path, name: str, batch: int, *options: str, ranks: int = 1) -> float:
    """Run ``train --benchmark``, each rank on a core of its own; return the samples a second."""
    results = dataset.parent / name
    words = [sys.executable, "-W", "ignore", "-c", MAIN, "train", "--dataset_dir", str(dataset)]
    words += ["--model_type", "dlrm", "--optimizer", "adagrad", "--global_batch_size", str(batch)]
    words += ["--benchmark", "--benchmark_warmup_steps", "3", "--benchmark_steps", "12", *options]
    words += ["--results_dir", str(results)]
    if ranks > 1:
        launcher = str(Path(sys.executable).parent / "horovodrun")
        words = [launcher, "-np", str(ranks), "--gloo", "-H", f"localhost:{ranks}", *words]
    else:
        words += ["--affinity", "single"]
    subprocess.run(words, capture_output=True, text=True, check=True)
    entries = map(json.loads, (results / "log.json").read_text().splitlines())
    return next(entry["throughput"] for entry in entries if entry["type"] == "benchmark")


def bench_ranks(work: Path) -> None:
    """Time two ranks of a core each beside one process on one core."""
    numbers, ids = [f"num_{n}" for n in range(13)], [f"cat_{n}" for n in range(26)]
    features = {"label": Feature("int8")} | {name: Feature("float32") for name in numbers}
    features |= {n: Feature("int32", rows) for n, rows in zip(ids, CARDINALITIES, strict=True)}
    channels = {"label": ("label",), "categorical": tuple(ids), "numerical": tuple(numbers)}
    chunks = {m: (Chunk("parquet", tuple(features), (f"{m}.parquet",)),) for m in ("train", "test")}
    (work / "spec").mkdir(parents=True)
    write_documents(work / "spec", FeatureSpec(features, chunks, channels, {}))
    sizes = ["--train_rows", str(20 * BATCH), "--test_rows", str(BATCH)]
    spec, dataset = work / "spec/feature_spec.yaml", work / "random"
    made = ["data", "synthesize", "dataset", "--feature_spec", str(spec), "--output", str(dataset)]
    measure("random ids", [MAIN, *made, *sizes])
    baseline, half, whole = "one process on one core", BATCH // 2, BATCH
    settings = {"samples_a_core": half, "optimizer": "adagrad", "rows_of_tables": ROWS_OF_TABLES}
    recording = Recording("dlrm-ranks", "DLRM, two ranks", settings)
    rates = {
        baseline: benchmark_run(dataset, "one", half),
        "two ranks, tables on both": benchmark_run(dataset, "two", whole, ranks=2),
        "two ranks, spread tables": benchmark_run(
            dataset, "spread", whole, "--tables", "spread", ranks=2
        ),
    }
    values = {name: [rate] for name, rate in rates.items()}
    recording.table("training", "samples/s", values, baseline)
    recording.end()


def synthesize(work: Path) -> Path:
    """Write the raw days, once."""
    raw = work / "raw"
    if not raw.exists():
        size = ["--days", str(DAYS), "--rows_per_day", str(ROWS_PER_DAY)]
        measure("synthesize", [MAIN, "data", "synthesize", "criteo", "--output", str(raw), *size])
    return raw


def preprocess(work: Path) -> tuple[Path, tuple[float, float, float]]:
    """Preprocess the days."""
    raw, output = synthesize(work), work / "dataset"
    arguments = [MAIN, "preprocess", "criteo", "--criteo_path", str(raw)]
    arguments += ["--output_path", str(output), "--overwrite", "--scheduler", "single"]
    return output, measure("merlin-sim, one process", arguments)


def bench_preprocess(work: Path) -> None:
    """Time preprocessing beside plain pandas."""
    text = (HERE / "baselines/plain_pandas_criteo.py").read_text()
    plain = measure("plain pandas", [text, str(synthesize(work)), str(work / "pandas")])
    _, ours = preprocess(work)
    rows = DAYS * ROWS_PER_DAY
    print(
        f"    {rows / ours[0]:,.0f} rows/s, {plain[0] / ours[0]:.1f}x plain pandas "
        f"({plain[1] / ours[1]:.1f}x in processor time, {ours[2] / plain[2]:.2f}x its memory)"
    )


def read_split_binary(directory: Path, batch: int):
    """Read as a plain numpy reader of split_binary does: a range of every file a batch."""
    spec = read_spec(directory / "feature_spec.yaml")
    with contextlib.ExitStack() as files:
        chunks = [
            (
                files.enter_context(open(directory / chunk.files[0], "rb")).fileno(),
                np.dtype(spec.feature_spec[chunk.features[0]].dtype),
                len(chunk.features),
            )
            for chunk in spec.source_spec["train"]
        ]
        yield from _read_batches(chunks, batch)


def _read_batches(chunks, batch: int):
    for number in itertools.count():
        arrays = []
        for file, dtype, columns in chunks:
            size = batch * columns * dtype.itemsize
            values = np.frombuffer(os.pread(file, size, number * size), dtype)
            arrays.append(values.reshape(-1, columns))
        label, numbers, *ids = arrays
        if not len(label):
            return
        categories = np.concatenate([column.astype(np.int32) for column in ids], axis=1)
        yield tf.constant(numbers.astype(np.float32)), tf.constant(categories), tf.constant(label)


def bench_feed(work: Path) -> None:
    """Time the feed beside a plain reader of split_binary."""
    directory, _ = preprocess(work)
    binary = work / "binary"
    if not binary.exists():
        spec = read_spec(directory / "feature_spec.yaml")
        Transcoder(spec, directory, to="split_binary").transcode(binary)
    dataset = DatasetDirectory.open(directory)
    columns = dataset.schema.column_names
    shuffled = open_loader(dataset, "train", columns, BATCH, Ranks(), shuffle=True, seed=1)
    stored = open_loader(dataset, "train", columns, BATCH, Ranks())
    baseline = "split_binary, numpy"
    alternatives = {
        "feed, shuffled": lambda: sum(int(labels.shape[0]) for _, labels in shuffled),
        "feed, stored order": lambda: sum(int(labels.shape[0]) for _, labels in stored),
        baseline: lambda: sum(
            int(labels.shape[0]) for *_, labels in read_split_binary(binary, BATCH)
        ),
    }
    recording = Recording("dlrm-feed", "DLRM, feed of 13 + 26 columns", {"batch": BATCH})
    in_turn(alternatives, 1)
    recording.table("reading", "rows/s", in_turn(alternatives, ROUNDS), baseline)
    recording.end()


def best_possible_auc() -> float:
    """Return the AUC of the chances that the last half day's clicks were drawn with."""
    planted = PlantedClicks(ROWS_PER_DAY)
    parts = list(clicks_of_day(planted, DAYS - 1))
    labels = np.concatenate([part.labels for part in parts])[ROWS_PER_DAY // 2 :]
    chances = np.concatenate([part.chances for part in parts])[ROWS_PER_DAY // 2 :]
    counts = AUC()
    counts.update_state(labels, chances)
    return float(counts.exact_result() or 0)


def trained_auc(dataset: Path, precision: str, results: Path) -> float:
    """Train a small DLRM for an epoch; return the AUC of the test rows."""
    words = [sys.executable, "-W", "ignore", "-c", MAIN, "train", "--dataset_dir", str(dataset)]
    words += ["--model_type", "dlrm", "--embedding_dim", "16", "--bottom_mlp_dims", "64,16"]
    words += ["--top_mlp_dims", "64,32,1", "--optimizer", "lazy_adam", "--lr", "0.002"]
    words += ["--global_batch_size", "2048", "--epochs", "1", "--seed", "1"]
    words += ["--precision", precision, "--results_dir", str(results)]
    subprocess.run(words, capture_output=True, text=True, check=True)
    entries = map(json.loads, (results / "log.json").read_text().splitlines())
    return next(entry["test_auc"] for entry in entries if entry["type"] == "result")


def bench_auc(work: Path) -> None:
    """Train on planted days in float32 and bfloat16; show the AUCs beside the best possible."""
    directory, _ = preprocess(work)
    found = {kind: trained_auc(directory, kind, work / f"run-{kind}") for kind in ("fp32", "bf16")}
    for kind, auc in found.items():
        print(f"{kind}: test AUC {auc:.4f}, {auc - found['fp32']:+.5f} beside fp32")
    print(f"best possible AUC {best_possible_auc():.4f}")


def main() -> None:
    """Measure what is asked for."""
    global ROWS_PER_DAY
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    benches = {
        "step": None,
        "ranks": bench_ranks,
        "preprocess": bench_preprocess,
        "feed": bench_feed,
        "auc": bench_auc,
    }
    parser.add_argument("benches", nargs="*", choices=[*benches, []], help="[default: all]")
    parser.add_argument("--rows_per_day", type=int, default=ROWS_PER_DAY, help="of the raw days")
    parser.add_argument("--work", type=Path, help="keep the files here [default: removed]")
    options = parser.parse_args()
    ROWS_PER_DAY = options.rows_per_day
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        for name in options.benches or benches:
            bench = benches[name]
            bench_step() if bench is None else bench(work)


if __name__ == "__main__":
    main()
