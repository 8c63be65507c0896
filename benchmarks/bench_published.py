"""SIM beside NVIDIA's published code itself, on the same samples, each in processes of its own.

    .venv/bin/python benchmarks/bench_published.py --published SIM --packages PACKAGES

``published.py`` says what SIM and PACKAGES are and how to get them. Without them the published rows
are left out. FuxiCTR's SIM, which has no interest evolution, joins where ``--fuxictr`` and
``--fuxictr_python`` name its folder and an environment: see ``baselines/fuxictr_models.py``. At
length 100: one epoch of planted logs, from the command's start to its evaluation's end, with
boosted trees beside; at 1000: a few training steps; at both: inference of test users with
100 candidates each. Rounds go in turn. ``MERLIN_SIM_RECORDS`` keeps records: see ``records.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from measuring.records import Recording
from rows.user_rows import write_users

HERE = Path(__file__).parent
COMMAND = str(Path(sys.executable).parent / "merlin-sim")
OURS_USERS, OURS_ROWS = "merlin-sim, from users", "merlin-sim, from rows"
PUBLISHED, TREES = "published code", "boosted trees on counts of the history"
FUXICTR = "FuxiCTR's SIM (no interest evolution)"
SHORT, CANDIDATES, SEED = 10, 100, 777
ITEMS, CATEGORIES = 15_000, 300
WARM_UP = 3


class Size(NamedTuple):
    """How much is measured at one length."""

    batch: int
    planted_users: int
    """Whose logs are trained on for an epoch; 0 for steps on random histories."""
    test_users: int
    inference_batch: int
    steps: int


SIZES = {100: Size(4096, 2000, 600, 4000, 12), 1000: Size(1024, 0, 100, 1000, 12)}
SMALL = {100: Size(256, 60, 12, 100, 5), 1000: Size(64, 0, 6, 100, 5)}


class Ended(NamedTuple):
    """What a command took, the entries of its log, and what it printed."""

    seconds: float
    entries: list[dict]
    printed: str

    @property
    def median_step(self) -> float:
        """Samples/s of the step in the middle, without the first ones and the last, a part."""
        steps = [e for e in self.entries if "samples/s" in e and "throughput" not in e]
        rates = [entry["samples/s"] for entry in steps]
        return statistics.median(rates[WARM_UP:-1])

    def last(self, key: str) -> float:
        """Return the newest value of a key."""
        return next(entry[key] for entry in reversed(self.entries) if key in entry)


def run(words: Sequence[object], results: Path | None = None) -> Ended:
    """Run a command; of one that fails its last words are shown."""
    begin = time.perf_counter()
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        reported = " ".join(map(str, words))
        raise SystemExit(f"{reported}\n{done.stdout[-500:]}\n{done.stderr[-3000:]}")
    lines = [] if results is None else (results / "log.json").read_text().splitlines()
    # The published log has its values one level down.
    entries = [entry.get("data", entry) for entry in map(json.loads, lines)]
    return Ended(seconds, entries, done.stdout)


def code_of(folder: Path) -> str:
    """Name the commit that last changed a folder, or else what its Python files hold."""
    words = ["git", "-C", folder, "log", "-1", "--format=%H", "--", "."]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    if commit:
        return f"commit {commit[:10]}"
    files = sorted(folder.rglob("*.py"))
    named = (str(file.relative_to(folder)).encode() + file.read_bytes() for file in files)
    return f"sha256 {hashlib.sha256(b''.join(named)).hexdigest()[:10]}"


@dataclass(frozen=True)
class Bench:
    """Runs both sides on the data of one length."""

    published: Path | None
    packages: Path | None
    fuxictr: tuple[Path, Path] | None
    """The folder of its models of long histories, and the Python that has FuxiCTR."""
    work: Path
    length: int
    size: Size

    def ours(self, mode: str, data: str, *options: object) -> Ended:
        """Run `merlin-sim train` or `inference`."""
        with tempfile.TemporaryDirectory(dir=self.work) as results:
            words = [COMMAND, mode, "--dataset_dir", self.work / data, "--results_dir", results]
            return run([*words, "--model_type", "sim", "--seed", 1, *options], Path(results))

    def theirs(self, data: str, *options: object) -> Ended:
        """Run the published main.py."""
        with tempfile.TemporaryDirectory(dir=self.work) as results:
            words = self._script("main.py", "--dataset_dir", self.work / data)
            words += ["--results_dir", results, "--affinity", "disabled", "--seed", 1]
            words += ["--long_seq_length", self.length - SHORT, *options]
            return run(words, Path(results))

    def convert(self, data: str, output: str, *options: object) -> Ended:
        """Run the published parquet_to_tfrecord.py."""
        words = self._script("preprocessing/parquet_to_tfrecord.py")
        words += ["--amazon_dataset_path", self.work / data, "--max_seq_len", self.length]
        return run([*words, "--tfrecord_output_dir", self.work / output, *options])

    def _script(self, name: str, *words: object) -> list[object]:
        adapter = [sys.executable, HERE / "published.py", self.published, self.packages]
        return [*adapter, name, *words]

    def rounds(self, ways: dict[str, Callable[[], Ended]], rounds: int) -> dict[str, list[Ended]]:
        """Run every way in turn; the published ones only where the code is at hand."""
        if self.published is None:
            ways = {name: way for name, way in ways.items() if name != PUBLISHED}
        found: dict[str, list[Ended]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                found[name].append(way())
        return found

    def planted(self, recording: Recording, rounds: int) -> None:
        """Train for an epoch of planted logs, evaluation included."""
        raw, size = self.work / "raw", self.size
        words = [COMMAND, "data", "synthesize", "--output", raw]
        run([*words, "--users", size.planted_users, "--seed", SEED])
        for layout, data in (("samples", "rows"), ("users", "users")):
            words = [COMMAND, "preprocess", "amazon-books", "--amazon_dataset_path", raw]
            words += ["--output_path", self.work / data, "--layout", layout]
            run(words + (["--pad"] if layout == "samples" else []))
        options = ["--global_batch_size", size.batch, "--epochs", 1]
        warm = ["--benchmark_warmup_steps", 1]  # which the published code wants to be passed
        converted = [] if self.published is None else [self.convert("rows", "records").seconds]
        ways: dict[str, Callable[[], Ended]] = {
            PUBLISHED: lambda: self.theirs("records", *options, *warm),
            OURS_ROWS: lambda: self.ours("train", "rows", *options),
            OURS_USERS: lambda: self.ours("train", "users", *options),
        }
        found = self.rounds(ways, rounds)
        rates = {name: [end.median_step for end in ends] for name, ends in found.items()}
        fuxictr = self.fuxictr_epochs(rounds)
        rates[FUXICTR] = fuxictr["samples/s"]
        recording.table("training step, the median one", "samples/s", rates, PUBLISHED)
        trees = self.trees()
        seconds = {name: [end.seconds for end in ends] for name, ends in found.items()}
        seconds |= {FUXICTR: fuxictr["seconds"], TREES: trees["seconds"]}
        whole = "whole run with evaluation, from the start of the command"
        recording.table(whole, "s", seconds, PUBLISHED)
        if converted:
            before = {"parquet to TFRecord, for the published code alone": converted}
            recording.table("before that", "s", before)
        aucs = {name: [end.last("test_auc") for end in ends] for name, ends in found.items()}
        aucs |= {FUXICTR: fuxictr["auc"], TREES: trees["auc"]}
        recording.table("test AUC after one epoch", "AUC", aucs)

    def fuxictr_epochs(self, rounds: int) -> dict[str, list[float]]:
        """Train FuxiCTR's SIM for an epoch of the rows, where it is at hand."""
        found: dict[str, list[float]] = {"samples/s": [], "seconds": [], "auc": []}
        if self.fuxictr is not None:
            models, python = self.fuxictr
            words = [python, "-W", "ignore", HERE / "baselines/fuxictr_models.py"]
            words += [self.work / "rows", models, "--model", "SIM", "--rate", 0.01]
            for _ in range(rounds):
                end = run([*words, "--batch", self.size.batch])
                printed = json.loads(end.printed.splitlines()[-1])
                for name in found:
                    found[name].append({**printed, "seconds": end.seconds}[name])
        return found

    def trees(self) -> dict[str, list[float]]:
        """Fit LightGBM on the rows, where it is at hand."""
        if self.packages is None:
            return {"auc": [], "seconds": []}
        words = [sys.executable, HERE / "baselines/count_trees.py", self.work / "rows"]
        printed = run([*words, self.packages]).printed
        return {name: [value] for name, value in json.loads(printed.splitlines()[-1]).items()}

    def rows_of(self, users: int, interactions: int, negatives: int, data: str) -> None:
        """Write users with full histories, and their samples as rows."""
        sizes = {"items": ITEMS, "categories": CATEGORIES}
        write_users(self.work / data, users, interactions, self.length, negatives, **sizes)
        words = [COMMAND, "data", "transcode", "--input", self.work / data]
        run([*words, "--output", self.work / f"{data}-rows"])

    def steps(self, recording: Recording, rounds: int) -> None:
        """Train a few steps on random histories."""
        size, positions = self.size, 80
        users = -(-size.batch * 6 // (2 * positions))
        self.rows_of(users, self.length + positions + 1, 1, "long")
        if self.published is not None:
            self.convert("long-rows", "long-records")
        options = ["--global_batch_size", size.batch, "--benchmark"]
        options += ["--benchmark_warmup_steps", WARM_UP, "--benchmark_steps", size.steps]
        ways: dict[str, Callable[[], Ended]] = {
            PUBLISHED: lambda: self.theirs("long-records", *options, "--repeat_count", 3),
            OURS_ROWS: lambda: self.ours("train", "long-rows", *options, "--repeat_count", 3),
            OURS_USERS: lambda: self.ours("train", "long", *options, "--repeat_count", 3),
        }
        found = self.rounds(ways, rounds)
        recording.table(
            "training step, the median one", "samples/s",
            {name: [end.median_step for end in ends] for name, ends in found.items()}, PUBLISHED,
        )  # fmt: skip

    def inference(self, recording: Recording, rounds: int) -> None:
        """Score test users with 100 candidates each."""
        size = self.size
        self.rows_of(size.test_users, self.length + 1, CANDIDATES - 1, "asked")
        if self.published is not None:  # whose inference reads what trains
            split = ["--train_split_dir", "test", "--test_split_dir", "test"]
            self.convert("asked-rows", "asked-records", *split)
        options = ["--global_batch_size", size.inference_batch, "--benchmark"]
        options += ["--benchmark_warmup_steps", WARM_UP, "--benchmark_steps", 2 * size.steps]
        infer = ["--mode", "inference", "--repeat_count", 4]
        users = f"merlin-sim, users x {CANDIDATES}"
        ways: dict[str, Callable[[], Ended]] = {
            PUBLISHED: lambda: self.theirs("asked-records", *infer, *options),
            OURS_ROWS: lambda: self.ours("inference", "asked-rows", *options),
            users: lambda: self.ours("inference", "asked", "--candidates", CANDIDATES, *options),
        }
        found = self.rounds(ways, rounds)
        recording.table(
            f"inference, {CANDIDATES} candidates a user", "samples/s",
            {name: [end.last("throughput") for end in ends] for name, ends in found.items()},
            PUBLISHED,
        )  # fmt: skip


def main() -> None:
    """Measure each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    variable = "MERLIN_SIM_PUBLISHED"
    parser.add_argument("--published", type=Path, default=os.environ.get(variable))
    parser.add_argument("--packages", type=Path, default=os.environ.get(f"{variable}_PACKAGES"))
    of_fuxictr = "MERLIN_SIM_FUXICTR"
    parser.add_argument("--fuxictr", type=Path, default=os.environ.get(of_fuxictr))
    parser.add_argument(
        "--fuxictr_python", type=Path, default=os.environ.get(f"{of_fuxictr}_PYTHON")
    )
    parser.add_argument("--length", type=int, action="append", choices=SIZES, help="[default: all]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="to try it: figures mean nothing")
    given = parser.parse_args()
    published, packages = given.published, given.packages
    if published is None or packages is None:
        print(
            "The published code and the trees are left out. --published and --packages, or "
            f"{variable} and {variable}_PACKAGES, name their folders; benchmarks/published.py says "
            "how to get them."
        )
        published = packages = None
    if (given.fuxictr is None) != (given.fuxictr_python is None):
        parser.error("--fuxictr and --fuxictr_python are given together, or neither")
    fuxictr = None if given.fuxictr is None else (given.fuxictr, given.fuxictr_python)
    for length in given.length or SIZES:
        size = (SMALL if given.small else SIZES)[length]
        settings = {
            "history": length, "batch": size.batch, "embedding_dim": 16, "optimizer": "adam, 0.01",
            "epochs": 1, "planted_users": size.planted_users, "seed": SEED, "rounds": given.rounds,
            "test_users": size.test_users, "inference_batch": size.inference_batch,
        }  # fmt: skip
        if published is not None:
            settings["published_code"] = code_of(published)
        if fuxictr is not None:
            settings["fuxictr"] = code_of(fuxictr[0])
        recording = Recording(f"sim-{length}", f"SIM, histories of {length}", settings)
        with tempfile.TemporaryDirectory() as work:
            bench = Bench(published, packages, fuxictr, Path(work), length, size)
            if size.planted_users:
                bench.planted(recording, given.rounds)
            else:
                bench.steps(recording, given.rounds)
            bench.inference(recording, given.rounds)
        recording.end()


if __name__ == "__main__":
    main()
