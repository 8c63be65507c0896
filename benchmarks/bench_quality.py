"""Test AUC of every model on real purchases and on MovieLens, by length of history, beside trees.

    python benchmarks/bench_quality.py [--all | --only purchases,movielens,synthetic]
        [--models sim,lifelong] [--lengths 100,1000] [--seeds N] [--results FILE] [--draw DIR]

The real logs are those of `make real-data`. Each model trains by `merlin-sim train` on the users
layout. Its learning rate is that of RATES with the best AUC of the validation data with the first
seed, and its epoch the best by the same, whatever the model; the test data chooses nothing. The
trees choose rate and number of trees the same way. Samples are the same at every length.

Each run's result is a line of FILE (quality.jsonl); what stands there is not run again, so that a
stopped benchmark goes on. Without `--all` it is a glance: the synthetic log, the preset and SIM,
one seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from baselines.count_trees import popularity_and_trees  # noqa: E402
from measuring.quality_table import Outcome, draw, print_table  # noqa: E402

COMMAND = str(Path(sys.executable).parent / "merlin-sim")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "merlin-sim/real-data"
RATES = (0.004, 0.008)
EPOCHS = 4


class Log(NamedTuple):
    """A log, and how it becomes samples."""

    title: str
    lengths: tuple[int, ...]
    options: str


MOVIELENS = (
    "--user_column user_id --item_column item_id --timestamp_column timestamp"
    " --item_feature_columns genre,genres,release_year"
    " --shortest_sequence_for_training 20 --test_users 0.2 --validation_users 0.1"
)
LOGS = {
    "purchases": Log(
        "purchases of 250 households with 450 and more, each sample with 300 before it; "
        "the last two weeks test, the two before them validate",
        (100, 1000),
        "--user_column household_id --item_column product_id"
        " --timestamp_column transaction_timestamp"
        " --item_feature_columns department,product_category,product_type"
        " --shortest_sequence_for_training 300"
        " --test_from 2017-12-18 --validation_from 2017-12-04",
    ),
    "movielens": Log(
        "MovieLens 100K, each sample with 20 before it; a fifth of the users tests, a tenth "
        "validates",
        (100, 500),
        MOVIELENS,
    ),
    "movielens-new": Log(
        "the same MovieLens 100K, no negative of which its user has rated",
        (100, 500),
        f"{MOVIELENS} --negatives_not_in_history",
    ),
    "synthetic": Log(
        "synthetic readers with lasting interests, each sample with 100 before it",
        (100, 1000),
        "--shortest_sequence_for_training 100 --test_users 0.2 --validation_users 0.1",
    ),
}

MODELS = {
    "din": "--model_type din",
    "dien": "--model_type dien",
    "sim": "--model_type sim",
    "eta": "--model_type eta",
    "sdim": "--model_type sdim",
    "twin": "--model_type twin",
    "stca": "--model_type stca",
    "sim-counts": "--model_type sim --history_counts true",
    "twin-counts": "--model_type twin --history_counts true",
    "lifelong": "--preset lifelong",
    "lifelong-twin": "--preset lifelong --model_type twin",
}

WITHOUT = {
    "no-counts": "--history_counts false",
    "no-dropout": "--dropout_rate 0",
    "no-decay": "--table_weight_decay 0",
    "no-dien": "--short_history attention",
    "no-first-stage": "--stage_one false",
}
"""The preset with one of its parts taken away."""
TRAINED = MODELS | {name: f"--preset lifelong {options}" for name, options in WITHOUT.items()}


def write_log(name: str, directory: Path) -> Path:
    """Write the log's interactions as parquet."""
    path = directory / f"{name}.parquet"
    source = CACHE / f"{name.removesuffix('-new')}.parquet"
    if not source.exists():
        raise SystemExit(f"{source} is missing: `make real-data` brings it.")
    log = pd.read_parquet(source)
    if name == "purchases":
        counts = log.groupby("household_id").size()
        many = np.sort(counts[counts >= 450].index.to_numpy())
        chosen = np.random.default_rng(1).choice(many, 250, replace=False)
        log = log[log.household_id.isin(chosen)]
    log.to_parquet(path)
    return path


def synthesize(directory: Path) -> Path:
    """Make raw logs by the real command."""
    raw = directory / "raw"
    words = [COMMAND, "synthesize", "--output", str(raw), "--seed", "7", "--overwrite"]
    words += "--users 400 --short_users 0 --items 4000 --categories 40 --mean_length 400".split()
    words += "--interests 4 --long_term 0.6 --short_term 0.2".split()
    subprocess.run(words, check=True, capture_output=True)
    return raw


def make_dataset(name: str, length: int, directory: Path) -> Path:
    """Go from the log to a dataset directory by the real command."""
    path = directory / f"{name}-{length}"
    if name == "synthetic":
        source = ["amazon-books", "--amazon_dataset_path", str(synthesize(directory))]
    else:
        source = ["log", str(write_log(name, directory))]
    words = [COMMAND, "preprocess", *source, "--output_path", str(path), "--layout", "users"]
    words += ["--max_sequence_length", str(length), *LOGS[name].options.split()]
    subprocess.run(words, check=True, capture_output=True)
    return path


def train(dataset: Path, model: str, rate: float, seed: int, results: Path) -> dict[str, Any]:
    """Run `merlin-sim train`; return what its log says at the end."""
    words = [COMMAND, "train", *TRAINED[model].split(), "--dataset_dir", str(dataset)]
    words += ["--lr", str(rate), "--seed", str(seed), "--results_dir", str(results)]
    words += ["--epochs", str(EPOCHS), "--early_stopping", "1", "--global_batch_size", "2048"]
    before = os.times()
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    after = os.times()
    if ended.returncode:
        raise SystemExit(f"{' '.join(words)}\n{ended.stderr}")
    entries = map(json.loads, (results / "log.json").read_text().splitlines())
    end: dict[str, Any] = next(entry for entry in entries if entry["type"] == "result")
    children = after.children_user + after.children_system
    end["processor_seconds"] = children - before.children_user - before.children_system
    return end


class Trials:
    """Runs what has no line in the file of results yet."""

    def __init__(self, results: Path) -> None:
        """Read what is there."""
        self.results = results
        lines = results.read_text().splitlines() if results.exists() else []
        self.done = [Outcome(**json.loads(line)) for line in lines]

    def find(self, **wanted: Any) -> list[Outcome]:
        """Return the outcomes with these values."""
        return [o for o in self.done if all(getattr(o, k) == v for k, v in wanted.items())]

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome, and tell of it."""
        self.done.append(outcome)
        with self.results.open("a") as file:
            file.write(json.dumps(outcome._asdict()) + "\n")
        print(
            f"{outcome.log} {outcome.length} {outcome.model}, rate {outcome.rate}, seed "
            f"{outcome.seed}: validation AUC {outcome.validation_auc:.4f}, test AUC "
            f"{outcome.auc:.4f}, within users {outcome.gauc:.4f}, {outcome.seconds:.0f} s",
            flush=True,
        )

    def baselines(self, log: str, length: int, dataset: Path) -> None:
        """Fit popularity and trees, if that was not done."""
        if self.find(log=log, length=length, model="popularity"):
            return
        for name, (validation, test) in popularity_and_trees(dataset, 1).items():
            self.add(Outcome(log, length, name, 0.0, 1, validation.auc, test.auc, test.gauc, 0.0))

    def model(self, log: str, length: int, model: str, dataset: Path, seeds: int) -> None:
        """Choose the rate with the first seed, then train with the others."""
        trial = {"log": log, "length": length, "model": model}
        for rate in RATES:
            self._train(trial, dataset, rate, 1)
        best = max(self.find(**trial, seed=1), key=lambda outcome: outcome.validation_auc)
        for seed in range(2, seeds + 1):
            self._train(trial, dataset, best.rate, seed)

    def _train(self, trial: dict[str, Any], dataset: Path, rate: float, seed: int) -> None:
        if self.find(**trial, rate=rate, seed=seed):
            return
        with tempfile.TemporaryDirectory() as results:
            end = train(dataset, trial["model"], rate, seed, Path(results))
        self.add(
            Outcome(
                **trial,
                rate=rate,
                seed=seed,
                validation_auc=end["best_validation_auc"],
                auc=end["best_test_auc"],
                gauc=end["best_test_gauc"],
                seconds=end["time_to_train"],
                processor_seconds=end["processor_seconds"],
            )
        )


def main() -> None:
    """Run what was asked for, then show all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every log, model and length, 3 seeds")
    parser.add_argument("--only", default="synthetic", help=f"of {', '.join(LOGS)}")
    parser.add_argument("--models", default="sim,lifelong", help=f"of {'; '.join(TRAINED)}")
    parser.add_argument("--lengths", default="", help="of the histories")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path("quality.jsonl"))
    parser.add_argument("--draw", type=Path, help="folder of the plots")
    options = parser.parse_args()
    logs = list(LOGS) if options.all else options.only.split(",")
    models = list(MODELS) if options.all else options.models.split(",")
    seeds = 3 if options.all else options.seeds
    trials = Trials(options.results)
    for log in logs:
        lengths = [int(n) for n in options.lengths.split(",") if n] or LOGS[log].lengths
        for length in lengths:
            with tempfile.TemporaryDirectory() as directory:
                dataset = make_dataset(log, length, Path(directory))
                trials.baselines(log, length, dataset)
                for model in models:
                    trials.model(log, length, model, dataset, seeds)
    print_table(trials.done, {name: log.title for name, log in LOGS.items()})
    if options.draw:
        draw([o for o in trials.done if o.model not in WITHOUT], options.draw)


if __name__ == "__main__":
    main()
