"""Measures this package on a GPU, and prints one markdown table: ``scripts/check_gpu.sh`` runs it.

Every line is a run of the command line, as a person would start it, or a few lines of Python in a
process of their own. These variables steer it:

    GPU_TABLE_LINES              only lines whose name has a match of this regular expression
    GPU_TABLE_ROWS               rows of the made-up dataset (default 262144)
    GPU_TABLE_STEPS              steps that are measured, after 20 (default 80)
    GPU_TABLE_USERS              users of the logs that are preprocessed (default 100000)
    GPU_TABLE_PUBLISHED          folder of the published implementation, to run beside ours
    GPU_TABLE_PUBLISHED_DATA     dataset of the same rows as its own preprocessing writes them
    GPU_TABLE_PUBLISHED_PACKAGES folder of packages that only it needs
    GPU_TABLE_PUBLISHED_OPTIONS  more of its options, such as --prebatch_train_size 8192
"""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_preprocess import AMAZON

from merlin_sim.foundation.gpus import Gpus, look

PROGRAM = Path(sys.executable).with_name("merlin-sim")
ROWS = int(os.environ.get("GPU_TABLE_ROWS", 262_144))
STEPS = int(os.environ.get("GPU_TABLE_STEPS", 80))
LINES = re.compile(os.environ.get("GPU_TABLE_LINES", ""))
USERS = int(os.environ.get("GPU_TABLE_USERS", 100_000))
PUBLISHED = os.environ.get("GPU_TABLE_PUBLISHED")
PUBLISHED_DATA = os.environ.get("GPU_TABLE_PUBLISHED_DATA")
PUBLISHED_PACKAGES = os.environ.get("GPU_TABLE_PUBLISHED_PACKAGES", "")
PUBLISHED_OPTIONS = shlex.split(os.environ.get("GPU_TABLE_PUBLISHED_OPTIONS", ""))
WARM_UP = 20
MOST_LOST = 0.001
"""Of FP32's AUC, with AMP."""
DEMO = "--users 2500 --items 2000 --categories 20 --interests 3 --long_term 0.6".split()
DEMO += "--short_term 0.2 --seed 1".split()
"""The logs of scripts/demo.sh."""

BATCHES = (4096, 16384, 65536, 131072)
PRECISIONS = {"FP32": ("--no_tf32",), "TF32": ("--tf32",), "AMP": ("--amp",)}
COMPILED = {"": (), " + XLA": ("--xla",)}

Line = tuple[str, str]


class Failed(Exception):
    """A command did not end well; its last words."""


def run(*words: object, **variables: str) -> float:
    """Run a command and return its seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise Failed(f"failed ({done.returncode}): {lines[-1][:160]}")
    return time.perf_counter() - begin


def entries(results: Path, kind: str) -> list[dict]:
    """Read the lines of a run's log that are of one kind."""
    lines = (results / "log.json").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["type"] == kind]


def benchmark(mode: str, dataset: Path, batch: int, options: tuple[str, ...]) -> dict:
    """Run a benchmark, feed included, and return what it logs."""
    with tempfile.TemporaryDirectory() as results:
        words = (PROGRAM, mode, "--dataset_dir", dataset, "--results_dir", results, "--benchmark")
        words += ("--benchmark_warmup_steps", WARM_UP, "--benchmark_steps", STEPS)
        run(*words, "--global_batch_size", batch, "--seed", 1, *options)
        return entries(Path(results), "benchmark" if mode == "train" else "inference")[-1]


def measured(mode: str, dataset: Path, batch: int, options: tuple[str, ...]) -> str:
    """Samples a second of training or inference, when it is warm; and memory."""
    return described(benchmark(mode, dataset, batch, options))


def described(entry: dict) -> str:
    """Say what a benchmark logged."""
    held = entry.get("peak_gpu_memory_gib")
    memory = "memory not told" if held is None else f"{held:.1f} GiB"
    return f"{entry['throughput']:,.0f} samples/s, {memory}"


def training_lines(dataset: Path):
    """SIM's training at every size, precision and with and without XLA; the largest first."""
    exact: dict[int, float] = {}
    for batch, precision, compiled in itertools.product(BATCHES[::-1], PRECISIONS, COMPILED):
        options = (*PRECISIONS[precision], *COMPILED[compiled])

        def figures(batch=batch, precision=precision, compiled=compiled, options=options) -> str:
            entry = benchmark("train", dataset, batch, options)
            loss = entry["total_loss"]
            if precision == "FP32" and not compiled:
                exact[batch] = loss
            beside = f" (FP32: {exact[batch]:.5f})" if batch in exact else ""
            return f"{described(entry)}, loss at step {entry['step']} {loss:.5f}{beside}"

        yield f"SIM training, {batch:,}, {precision}{compiled}", figures


def other_lines(dataset: Path):
    """Inference, the other models of histories, the feed alone, a whole run."""
    fast = ("--amp", "--xla")
    for batch in (*BATCHES[:1], 8192, *BATCHES[1:2], 32768, *BATCHES[2:]):
        yield (
            f"SIM inference, {batch:,}, AMP + XLA",
            lambda batch=batch: measured("inference", dataset, batch, fast),
        )
    yield (
        "SIM inference, 131,072, AMP + XLA, batches in GPU memory beforehand",
        lambda: worker(PREBATCHED, dataset),
    )
    yield (
        "SIM training, 131,072, AMP + XLA, batches in GPU memory beforehand",
        lambda: worker(TRAINED_BEFOREHAND, dataset),
    )
    for model in ("din", "dien", "eta", "sdim", "twin"):
        yield (
            f"{model.upper()} training, 131,072, AMP + XLA",
            lambda own=(*fast, "--model_type", model): measured("train", dataset, 131072, own),
        )
    for name, variables in (("cudf", {}), ("CPU", {"CUDA_VISIBLE_DEVICES": ""})):
        yield (
            f"feed alone, {name} path",
            lambda variables=variables: worker(FEED, dataset, **variables),
        )
    yield "time to the first step, 131,072, AMP + XLA", lambda: first_step(dataset, fast)
    yield "whole run from parquet, one epoch, 131,072, AMP + XLA", lambda: whole_run(dataset, fast)


FEED = """
import sys, time
from pathlib import Path
from merlin_sim.feed.open_feed import open_feed
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory
dataset = DatasetDirectory.open(Path(sys.argv[1]))
feed = open_feed(dataset, "train", dataset.schema.column_names, 16384, Ranks(), shuffle=True)
for timed in (False, True):
    begin, rows = time.perf_counter(), 0
    for columns, labels in feed:
        rows += len(labels)
print(rows / (time.perf_counter() - begin))
"""


PREBATCHED = """
import sys, time
from pathlib import Path
from merlin_sim.foundation.process_wide import quiet_merlin
quiet_merlin()
import tensorflow as tf
from merlin_sim.feed.open_feed import open_feed
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.prediction import Predictor
tf.keras.mixed_precision.set_global_policy("mixed_float16")
dataset = DatasetDirectory.open(Path(sys.argv[1]))
model = build_model("sim", dataset.schema)
feed = open_feed(dataset, "test", dataset.schema.column_names, 131072, Ranks())
batches = [(columns, len(labels)) for columns, labels in feed if len(labels) == 131072]
predict = Predictor(model, xla=True)
for timed in (False, True):
    begin, rows = time.perf_counter(), 0
    for _ in range(50):
        for columns, count in batches:
            scores, rows = predict(columns), rows + count
    scores.numpy()
print(rows / (time.perf_counter() - begin))
"""


TRAINED_BEFOREHAND = """
import sys, time
from pathlib import Path
from merlin_sim.foundation.process_wide import quiet_merlin
quiet_merlin()
import tensorflow as tf
from merlin_sim.feed.open_feed import open_feed
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.steps.loss_scale import LossScale
from merlin_sim.steps.optimizers import make_optimizer
from merlin_sim.steps.sample_batch import SampleBatch
from merlin_sim.steps.train_step import TrainStep
tf.keras.mixed_precision.set_global_policy("mixed_float16")
dataset = DatasetDirectory.open(Path(sys.argv[1]))
model = build_model("sim", dataset.schema)
optimizer = make_optimizer("adam", model.trainable_variables, 0.01)
step = TrainStep(model, optimizer, LossScale(True), Ranks(), xla=True)
feed = open_feed(dataset, "train", dataset.schema.column_names, 131072, Ranks())
batches = [SampleBatch(*given) for given in feed]
for timed in (False, True):
    begin, rows = time.perf_counter(), 0
    for _ in range(20):
        for batch in batches:
            losses = step.on_batch(batch, batch.samples).losses
            rows += batch.samples
    losses.numpy()
print(rows / (time.perf_counter() - begin))
"""


def worker(code: str, dataset: Path, **variables: str) -> str:
    """Run a few lines in a process of their own; the last that they print is samples a second."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(dataset)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    if done.returncode:
        raise Failed(f"failed: {done.stderr.strip().splitlines()[-1][:160]}")
    return f"{float(done.stdout.split()[-1]):,.0f} samples/s"


def first_step(dataset: Path, options: tuple[str, ...]) -> str:
    """Seconds of a run of one step, imports and compiling included."""
    with tempfile.TemporaryDirectory() as results:
        words = (PROGRAM, "train", "--dataset_dir", dataset, "--results_dir", results)
        words += ("--benchmark", "--benchmark_steps", 1, "--benchmark_warmup_steps", 0)
        return f"{run(*words, '--global_batch_size', 131072, *options):.1f} s"


def whole_run(dataset: Path, options: tuple[str, ...]) -> str:
    """Seconds of an epoch with its evaluation, and the most memory that the GPU held."""
    with tempfile.TemporaryDirectory() as results:
        words = (PROGRAM, "train", "--dataset_dir", dataset, "--results_dir", results)
        seconds = run(*words, "--epochs", 1, "--global_batch_size", 131072, *options)
        auc = entries(Path(results), "result")[-1]["test_auc"]
        return f"{seconds:.1f} s for {ROWS:,} rows, test AUC {auc:.4f}"


def users_lines(root: Path):
    """Training from users x candidates: 16 samples of a user share the user's history."""

    def figures(model: str) -> str:
        from rows import user_rows

        if not (root / "users").exists():
            user_rows.write_users(root / "users", ROWS // 16, 108, 100)
        return measured("train", root / "users", 131072, ("--amp", "--xla", "--model_type", model))

    for model in ("sim", "twin"):
        yield (
            f"{model.upper()} training from users x 16 candidates, 131,072, AMP + XLA",
            lambda model=model: figures(model),
        )


def click_lines(root: Path):
    """DLRM and DCNv2 on logs of Criteo's form."""

    def figures(model: str, precision: tuple[str, ...]) -> str:
        if not (root / "clicks").exists():
            made = ("--days", 4, "--rows_per_day", ROWS, "--most_keys", 1_000_000)
            run(PROGRAM, "synthesize", "criteo", "--output", root / "days", *made)
            words = (PROGRAM, "preprocess", "criteo", "--criteo_path", root / "days")
            run(*words, "--output_path", root / "clicks", "--frequency_threshold", 1)
        own = ("--model_type", model, "--optimizer", "sgd", "--embedding_dim", "128")
        return measured("train", root / "clicks", 65536, (*precision, *own))

    for model, precision in itertools.product(
        ("dlrm", "dcnv2"), (("--tf32",), ("--amp",), ("--amp", "--xla"))
    ):
        named = " + ".join(word.strip("-").upper() for word in precision)
        yield (
            f"{model.upper()} training, 65,536, {named}",
            lambda model=model, precision=precision: figures(model, precision),
        )


def precision_line(root: Path):
    """AUC with AMP beside FP32, trained as `make demo` trains, from its logs."""

    def figures() -> str:
        preprocess(root, "demo", *DEMO, layout="users")
        aucs = {}
        for precision in ("FP32", "AMP"):
            with tempfile.TemporaryDirectory() as results:
                words = (PROGRAM, "train", "--dataset_dir", root / "demo", "--results_dir", results)
                words += ("--global_batch_size", 1024, "--epochs", 2, "--seed", 1)
                run(*words, *PRECISIONS[precision])
                aucs[precision] = entries(Path(results), "result")[-1]["test_auc"]
        difference = aucs["AMP"] - aucs["FP32"]
        judged = "within" if abs(difference) <= MOST_LOST else "not within"
        return (
            f"{aucs['AMP']:.4f}, FP32 {aucs['FP32']:.4f} "
            f"(difference {difference:+.4f}, {judged} {MOST_LOST})"
        )

    yield "test AUC with AMP, on the demo's logs", figures


def preprocess(
    root: Path, place: str, *size: object, layout: str = "samples", **variables: str
) -> float:
    """Preprocess synthetic logs of Amazon Books' form, and return the seconds."""
    raw = root / f"raw of {' '.join(map(str, size))}"
    if not raw.exists():
        run(PROGRAM, "synthesize", "--output", raw, *size)
    words = (PROGRAM, "preprocess", "amazon-books", "--amazon_dataset_path", raw)
    return run(
        *words, "--output_path", root / place, "--overwrite", "--layout", layout, **variables
    )


def preprocessing_lines(root: Path):
    """Preprocessing on GPU and CPU, of some users and of as many as Amazon Books has."""
    sizes = {f"{USERS:,} users": ("--users", USERS), "Amazon Books' size": AMAZON}
    devices = {"GPU": {}, "CPU": {"CUDA_VISIBLE_DEVICES": ""}}
    for (named, size), (device, variables) in itertools.product(sizes.items(), devices.items()):
        yield (
            f"preprocessing, {named}, {device}",
            lambda size=size, variables=variables: (
                f"{preprocess(root, 'preprocessed', *size, **variables):.1f} s"
            ),
        )


def published_lines():
    """The published implementation's own benchmark, where its folder and its data are named."""
    if PUBLISHED is None or PUBLISHED_DATA is None:
        return

    passes = -(-(WARM_UP + STEPS) * 131072 // ROWS)
    enough = {  # inference goes through the data once
        "train": ("--epochs", passes),
        "inference": ("--repeat_count", passes, "--disable_cache"),
    }

    def figures(mode: str) -> str:
        with tempfile.TemporaryDirectory() as results:
            words = (sys.executable, Path(PUBLISHED) / "main.py", "--mode", mode, "--benchmark")
            words += ("--dataset_dir", PUBLISHED_DATA, "--results_dir", results, "--amp", "--xla")
            words += ("--benchmark_warmup_steps", WARM_UP, "--benchmark_steps", STEPS)
            words += (*enough[mode], "--seed", 1, *PUBLISHED_OPTIONS)
            run(*words, "--global_batch_size", 131072, PYTHONPATH=PUBLISHED_PACKAGES)
            text = "".join(path.read_text() for path in Path(results).rglob("*.json"))
            rates = re.findall(r'"(?:mean_)?throughput[^"]*": *([0-9.]+)', text)
            return f"{float(rates[-1]):,.0f} samples/s" if rates else "no throughput in its log"

    for mode in ("train", "inference"):
        yield f"published code, {mode}, 131,072, AMP + XLA", lambda mode=mode: figures(mode)


def head(gpus: Gpus) -> list[Line]:
    """Machine, driver, versions, date."""
    versions = []
    for package in ("tensorflow", "merlin-models", "nvtabular", "cudf-cu12", "cupy-cuda12x"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return [
        ("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")),
        ("GPU", ", ".join(gpu.name for gpu in gpus.visible)),
        ("driver", f"{gpus.driver}, CUDA {gpus.cuda[0]}.{gpus.cuda[1]}"),
        ("machine", f"{platform.machine()}, {os.cpu_count()} CPU cores"),
        ("versions", ", ".join(versions)),
    ]


def main() -> None:
    """Print the table line by line; what fails says so in its line."""
    gpus = look()
    if not gpus.visible:
        sys.exit(f"gpu_table: there is no GPU: {gpus.problem or 'none visible'}")
    print("| what | measured |\n|---|---|")
    for name, value in head(gpus):
        print(f"| {name} | {value} |", flush=True)
    from rows import sim_rows

    sim_rows.TEST_ROWS = max(BATCHES)  # one whole batch of the largest
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sim_rows.write_dataset(root / "dataset", ROWS)
        dataset = root / "dataset"
        lines = itertools.chain(
            training_lines(dataset),
            other_lines(dataset),
            users_lines(root),
            published_lines(),
            preprocessing_lines(root),
            precision_line(root),
            click_lines(root),
        )
        for name, figures in lines:
            if not LINES.search(name):
                continue
            try:
                print(f"| {name} | {figures()} |", flush=True)
            except Failed as error:
                print(f"| {name} | {error} |", flush=True)


if __name__ == "__main__":
    main()
