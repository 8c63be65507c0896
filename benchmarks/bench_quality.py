"""Test AUC of every model on six logs, beside rules, trees, regression and FuxiCTR's models.

    python benchmarks/bench_quality.py [--all] [--only LOG,...] [--models NAME;...]
        [--lengths N,...] [--seeds N] [--packages DIR] [--fuxictr LONGCTR PYTHON]
        [--records DIR] [--work DIR]

The real logs are those of `make real-data`; `--packages` has LightGBM, `--fuxictr` the folder
model_zoo/LongCTR and an environment (docs/benchmarks.md). Whatever the model, its learning rate is
that of the best AUC of the validation data with the first seed, and so is its epoch, or the number
of trees; the test data choose nothing. All are tested on the same samples.

Each run is a line in a file of `--records`, with the AUC, each test user's influence on it, and the
commit. A run that stands there with the same settings is not repeated, so that a stopped benchmark
goes on, and the most telling come first. A record has no times: AUC is the same at any load.
Without `--all` it is a glance: the synthetic readers, one seed, nothing is kept.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from baselines.count_trees import fit_regression, fit_trees, tables
from measuring.auc_of_users import AUCOfUsers
from measuring.quality_logs import LOGS, make_dataset, write_log
from measuring.quality_models import (
    COUNTS,
    FIRST,
    FUXICTR,
    MODELS,
    ORACLE,
    RECENCY,
    REGRESSION,
    RULES,
    TRAINED,
    TREES,
    TREES_OF_RECENCY,
)
from measuring.quality_table import Outcome, comparison, read_outcomes
from measuring.records import commit

RATES = (0.002, 0.004)
EPOCHS, BATCH = 6, 512
COMMON = f"--epochs {EPOCHS} --early_stopping 1 --global_batch_size {BATCH}"
ONE_THREAD = "--intra_op_parallelism 1 --inter_op_parallelism 1"
FITTED = {
    TREES: (fit_trees, (0.03, 0.1)),
    TREES_OF_RECENCY: (fit_trees, (0.03, 0.1)),
    REGRESSION: (fit_regression, (0.01, 1.0)),
}
FUXICTR_RATES = (0.001, 0.004)
FUXICTR_COMMON = f"--epochs {EPOCHS} --batch {BATCH}"
BASELINES = Path(__file__).parent / "baselines"
FORK = multiprocessing.get_context("forkserver")


class Scored(NamedTuple):
    """What a run found."""

    validation_auc: float
    test: AUCOfUsers


class Trial(NamedTuple):
    """A model on a log at a length."""

    log: str
    length: int
    model: str


def in_fork(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function in a process that has imported TensorFlow, and not started it."""
    process = FORK.Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"{function.__name__} {arguments} ended with {process.exitcode}.")


def call_command(words: list[str], printed: str) -> None:
    """Run `merlin-sim` in this process; what it prints goes to a file."""
    from merlin_sim.scripts import main

    with open(printed, "w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.argv = ["merlin-sim", *words]
    main.main()


def command(*words: Any) -> None:
    """Run `merlin-sim` in a process of its own."""
    with tempfile.NamedTemporaryFile() as printed:
        try:
            in_fork(call_command, [str(word) for word in words], printed.name)
        except SystemExit:
            sys.stderr.write(Path(printed.name).read_text())
            raise


def write_tables(dataset: Path, output: Path) -> None:
    """Keep what baselines read of a dataset."""
    pd.to_pickle(tables(dataset), output)


def write_rows(users: Path, output: Path) -> None:
    """Write the samples of a dataset of users as rows, in their stored order, for FuxiCTR."""
    from merlin_sim.dataloader.open_loader import open_loader
    from merlin_sim.foundation.ranks import Ranks
    from merlin_sim.schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(users)
    names = ("label", "target_item_features", "positive_history")
    columns = [column for name in names for column in dataset.channels[name]]
    spec = yaml.safe_load((users / "feature_spec.yaml").read_text())
    output.mkdir()
    for mapping in spec["source_spec"]:
        feed, parts = open_loader(dataset, mapping, columns, 2048, Ranks()), []
        for given in feed.inputs():
            batch, labels = feed.whole(given)
            found = {columns[0]: labels, **{name: batch[name] for name in columns[1:]}}
            parts.append(pa.table({n: pa.array(list(v.numpy())) for n, v in found.items()}))
        pq.write_table(pa.concat_tables(parts), output / f"{mapping}.parquet")
        spec["source_spec"][mapping] = [{"files": [f"{mapping}.parquet"]}]
    (output / "feature_spec.yaml").write_text(yaml.safe_dump(spec))


class Trials:
    """Runs what has no line in the records yet."""

    def __init__(
        self, records: Path, work: Path, packages: Path | None, fuxictr: Any, of: str
    ) -> None:
        """Read what is there; new runs are ``of`` a commit."""
        self.records, self.work, self.packages, self.fuxictr = records, work, packages, fuxictr
        self.commit = of
        records.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        self.done = read_outcomes(records)

    def run(self, trial: Trial, seed: int, most_rates: int | None = None) -> None:
        """Run a model with a seed, if that was not done: the first one at each of its rates."""
        if trial.model == RULES:
            self._rules(trial)
            return
        score, rates, settings = self._way(trial)
        if score is None:
            return
        rates = rates[:most_rates]
        if seed > 1:
            first = [self._find(trial, rate, 1, settings) for rate in rates]
            chosen = max((o for o in first if o), key=lambda o: o.validation_auc, default=None)
            rates = () if chosen is None else (chosen.rate,)
        for rate in rates:
            if not self._find(trial, rate, seed, settings):
                self._keep(trial, rate, seed, settings, score(trial, rate, seed))

    def _way(self, trial: Trial) -> tuple[Any, tuple[float, ...], str]:
        """Return what scores a model, its rates, and its settings."""
        options = LOGS[trial.log].options
        if RECENCY in trial.model and "--timestamp_unit order" in options:
            return None, (), options
        if trial.model in FITTED:
            has_it = self.packages is not None or trial.model == REGRESSION
            return (self._fitted if has_it else None), FITTED[trial.model][1], options
        if trial.model in FUXICTR:
            score = self._fuxictr if self.fuxictr else None
            return score, FUXICTR_RATES, f"{options} {FUXICTR_COMMON}"
        return self._train, RATES, f"{options} {MODELS[trial.model].words} {COMMON}"

    def _find(self, trial: Trial, rate: float, seed: int, settings: str) -> Outcome | None:
        wanted = (*trial, rate, seed, settings)
        return next((o for o in self.done if o[: len(wanted)] == wanted), None)

    def _keep(self, trial: Trial, rate: float, seed: int, settings: str, found: Scored) -> None:
        influence = np.round(1e6 * found.test.influence).astype(int).tolist()
        today = datetime.date.today().isoformat()
        scores = (found.validation_auc, found.test.auc)
        outcome = Outcome(*trial, rate, seed, settings, *scores, influence, self.commit, today)
        self.done.append(outcome)
        with (self.records / f"{trial.log}-{trial.length}.jsonl").open("a") as file:
            file.write(json.dumps(outcome._asdict()) + "\n")
        print(
            f"{trial.log} {trial.length} {trial.model}, rate {rate}, seed {seed}: validation AUC "
            f"{outcome.validation_auc:.4f}, test AUC {outcome.auc:.4f}",
            flush=True,
        )

    def _dataset(self, trial: Trial, *more: str) -> Path:
        return make_dataset(trial.log, trial.length, more, command, self.work)

    def _train(self, trial: Trial, rate: float, seed: int) -> Scored:
        """Train by `merlin-sim train`, and score with what was best by validation."""
        more = [name for name in (COUNTS, RECENCY) if name in trial.model]
        dataset = self._dataset(trial, *more)
        with tempfile.TemporaryDirectory() as folder:
            data = ["--dataset_dir", dataset, "--results_dir", folder, *ONE_THREAD.split()]
            words = [*data, *MODELS[trial.model].words.split(), *COMMON.split()]
            words += ["--lr", rate, "--seed", seed, "--save_checkpoint_path", f"{folder}/saved"]
            command("train", *words, "--keep_checkpoints", 1)
            entries = map(json.loads, Path(folder, "log.json").read_text().splitlines())
            end: dict[str, Any] = next(entry for entry in entries if entry["type"] == "result")
            data[3] = f"{folder}/scores"
            load = ["--load_checkpoint_path", f"{folder}/saved", "--global_batch_size", 2048]
            command("inference", *data, *load, "--save_scores")
            rows = pd.read_parquet(f"{folder}/scores/test_scores.parquet")
        test = AUCOfUsers.of(rows.row.to_numpy(), rows.label.to_numpy(), rows.score.to_numpy())
        return Scored(end["best_validation_auc"], test)

    def _tables(self, trial: Trial) -> Any:
        more = [COUNTS, RECENCY] if RECENCY in trial.model else [COUNTS]
        dataset = self._dataset(trial, *more)
        path = self.work / f"{dataset.name}.pickle"
        if not path.exists():
            in_fork(write_tables, dataset, path)
        return pd.read_pickle(path)

    def _rules(self, trial: Trial) -> None:
        settings = LOGS[trial.log].options
        if self._find(trial._replace(model="rule: times ever"), 0.0, 1, settings):
            return
        parts = self._tables(trial)
        for rule in parts["test"].rules:
            scores = [parts[name].rules[rule] for name in ("validation", "test")]
            self._keep(trial._replace(model=rule), 0.0, 1, settings, judge(parts, scores))
        if "oracle" in (log := pd.read_parquet(write_log(trial.log, command, self.work))):
            found = self._oracle(trial, log)
            self._keep(trial._replace(model=ORACLE), 0.0, 1, settings, found)

    def _oracle(self, trial: Trial, log: pd.DataFrame) -> Scored:
        """Score the rows that test by the probability that made their labels."""
        of, options = LOGS[trial.log], LOGS[trial.log].options.split()
        test, validation = (
            int(options[options.index(name) + 1]) for name in ("--test_from", "--validation_from")
        )
        dataset = self._dataset(trial)
        known = pd.read_parquet(dataset / f"categories/{of.user}.parquet")
        ids = log[of.user].map(dict(zip(known.key.astype(int), known.id, strict=True)))
        rows = pd.read_parquet(dataset / "users")[of.user]
        users = ids.map(dict(zip(rows, rows.index, strict=True)))
        times, clicks = log[of.time], log[of.options.split()[1]]
        held_out = (times.between(validation, test, "left"), times >= test)
        aucs = [
            AUCOfUsers.of(users[rows], clicks[rows].to_numpy(), log.oracle[rows])
            for rows in held_out
        ]
        return Scored(aucs[0].auc, aucs[1])

    def _fitted(self, trial: Trial, rate: float, seed: int) -> Scored:
        sys.path += [str(self.packages)] if self.packages else []
        parts = self._tables(trial)
        return judge(parts, FITTED[trial.model][0](parts, rate, seed))

    def _fuxictr(self, trial: Trial, rate: float, seed: int) -> Scored:
        """Train one of FuxiCTR's models on the same samples as rows."""
        dataset = self._dataset(trial)
        rows = dataset.with_name(f"{dataset.name}-rows")
        if not rows.exists():
            in_fork(write_rows, dataset, rows)
        models, python = self.fuxictr
        with tempfile.NamedTemporaryFile(suffix=".npz") as scores:
            words = [python, "-W", "ignore", BASELINES / "fuxictr_models.py", rows, models]
            words += ["--model", trial.model.split()[1], "--rate", rate, "--seed", seed]
            words += FUXICTR_COMMON.split()
            ended = subprocess.run(
                [*map(str, words), "--scores", scores.name], capture_output=True, text=True
            )
            if ended.returncode:
                raise SystemExit(ended.stderr)
            found, expected = np.load(scores.name), self._tables(trial)["test"]
            if not np.array_equal(found["labels"], expected.labels):
                raise SystemExit(f"{rows}: the test rows are not those of {dataset}.")
            test = AUCOfUsers.of(expected.users, expected.labels, found["scores"])
        return Scored(json.loads(ended.stdout.splitlines()[-1])["validation_auc"], test)


def judge(parts: Any, scores: list[np.ndarray]) -> Scored:
    """Compute the AUC of validation and test data."""
    names = ("validation", "test")
    aucs = [
        AUCOfUsers.of(parts[name].users, parts[name].labels, values)
        for name, values in zip(names, scores, strict=True)
    ]
    return Scored(aucs[0].auc, aucs[1])


def order(
    logs: list[str], models: list[str], seeds: int
) -> Iterator[tuple[Trial, int, int | None]]:
    """Give the runs with seed and most rates, the most telling first: one rate of each model."""
    firsts = [model for model in FIRST if model in models]
    others = [model for model in models if model not in (*FIRST, *FUXICTR)]
    lengths = dict.fromkeys(length for log in logs for length in LOGS[log].lengths)
    rounds = [(1, 1), *((seed, None) for seed in range(1, seeds + 1))]
    for some in (firsts, others, [model for model in FUXICTR if model in models]):
        for (seed, most_rates), length in itertools.product(rounds, lengths):
            for model, log in itertools.product(some, logs):
                if length in LOGS[log].lengths:
                    yield Trial(log, length, model), seed, most_rates


def main() -> None:
    """Run what was asked for, then show all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every log and model, 3 seeds")
    parser.add_argument("--only", default="readers", help=f"of {', '.join(LOGS)}")
    parser.add_argument(
        "--models", default="rules;preset lifelong", help=f"of {'; '.join([RULES, *TRAINED])}"
    )
    parser.add_argument("--lengths", default="", help="of histories, those that a log has")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--packages", type=Path, help="folder that has LightGBM")
    parser.add_argument("--fuxictr", nargs=2, help="LongCTR and its Python")
    parser.add_argument("--records", type=Path, help="folder of the records")
    parser.add_argument("--work", type=Path, help="folder of datasets that are kept")
    options = parser.parse_args()
    logs = list(LOGS) if options.all else options.only.split(",")
    models = [RULES, *TRAINED] if options.all else options.models.split(";")
    for given, known in ((logs, LOGS), (models, [RULES, *TRAINED])):
        unknown = [name for name in given if name not in known]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; expected some of {'; '.join(known)}")
    lengths = [int(length) for length in options.lengths.split(",") if length]
    FORK.set_forkserver_preload(["merlin_sim.scripts.main", "tensorflow", "nvtabular"])
    with tempfile.TemporaryDirectory() as folder:
        folders = (options.records or Path(folder) / "records", options.work or Path(folder))
        of = commit() if options.records else ""
        trials = Trials(*folders, options.packages, options.fuxictr, of)
        for trial, *which in order(logs, models, 3 if options.all else options.seeds):
            if not lengths or trial.length in lengths:
                trials.run(trial, *which)
    print(comparison(trials.done, {log: LOGS[log].title for log in logs}, TRAINED))


if __name__ == "__main__":
    main()
