"""The rules, read once more: plain pandas and Python, nothing of the package."""

from __future__ import annotations

import ast
import gzip
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import preprocess_runs
import pytest
from click.testing import CliRunner
from forked_workers import forked

from merlin_sim.scripts.main import cli
from merlin_sim.workflows.schedulers import SingleProcess
from merlin_sim.workflows.synthetic.amazon_logs import PlantedBehaviour, synthesize


def read_lines(directory: Path, name: str) -> list[str]:
    path = directory / name
    if path.exists():
        return path.read_text(encoding="utf-8").splitlines()
    with gzip.open(directory / f"{name}.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


class PlainRules:
    """The published rules as a person reads them, for small logs."""

    def __init__(self, raw: Path, *, longest=100, shortest_user=20, shortest_training=1):
        reviews = pd.DataFrame(
            [json.loads(line) for line in read_lines(raw, "reviews_Books.json") if line.strip()]
        )
        self.category = {}
        for line in read_lines(raw, "meta_Books.json"):
            fields = ast.literal_eval(line)
            self.category.setdefault(fields["asin"], fields["categories"][0][-1])
        counts = reviews.groupby("reviewerID")["asin"].transform("size")
        self.kept = reviews[counts >= shortest_user]
        self.kept = self.kept.sort_values(["reviewerID", "unixReviewTime", "asin"])
        self.users = set(self.kept["reviewerID"])
        self.popularity = Counter(self.kept["asin"])
        self.train, self.test = Counter(), Counter()
        for user, items in self.kept.groupby("reviewerID")["asin"]:
            items = list(items)
            last = len(items) - 1
            for position, target in enumerate(items):
                row = self._row(user, target, items[max(0, position - longest) : position])
                if position == last:
                    self.test[row] += 1
                elif position >= shortest_training:
                    self.train[row] += 1

    def category_of(self, item: str) -> str:
        return self.category.get(item, "no_category")

    def _row(self, user, target, history):
        categories = tuple(self.category_of(item) for item in history)
        return (user, target, self.category_of(target), tuple(history), categories)


def raw_rows(dataset: Path, mapping: str) -> pd.DataFrame:
    """A mapping's rows with raw keys in place of ids; padding left out."""
    frame = pd.concat(
        [pd.read_parquet(path) for path in sorted((dataset / mapping).glob("*.parquet"))],
        ignore_index=True,
    )
    for domain in ("user_id", "item_id", "cat_id"):
        table = pd.read_parquet(dataset / "categories" / f"{domain}.parquet")
        key = dict(zip(table["id"], table["key"], strict=True))
        for name in [name for name in frame if name.startswith(domain)]:
            if name.endswith(("_pos", "_neg")):
                frame[name] = [tuple(key[i] for i in ids if i) for ids in frame[name]]
            else:
                frame[name] = frame[name].map(key)
    return frame


def positives(rows: pd.DataFrame) -> Counter:
    kept = rows[rows["label"] == 1]
    names = ["user_id", "item_id_trgt", "cat_id_trgt", "item_id_pos", "cat_id_pos"]
    return Counter(kept[names].itertuples(index=False, name=None))


@pytest.fixture
def forked_workers():
    """Let the workers of local clusters start within a fraction of a second."""
    with forked():
        yield


@pytest.fixture(scope="session")
def plain_rules():
    return PlainRules


@pytest.fixture(scope="session")
def rows_of():
    return raw_rows


@pytest.fixture(scope="session")
def positives_of():
    return positives


def write_raw(directory: Path, reviews: list, metadata: list) -> Path:
    """Write raw files of (user, item, time) and (item, paths)."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"reviewerID": user, "asin": item, "overall": 5.0, "unixReviewTime": time})
        for user, item, time in reviews
    ]
    (directory / "reviews_Books.json").write_text("".join(f"{line}\n" for line in lines))
    lines = [repr({"asin": item, "title": "x", "categories": paths}) for item, paths in metadata]
    (directory / "meta_Books.json").write_text("".join(f"{line}\n" for line in lines))
    return directory


@pytest.fixture(scope="session")
def raw_writer():
    return write_raw


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    directory = tmp_path_factory.mktemp("raw")
    behaviour = PlantedBehaviour(
        users=80, items=300, categories=12, mean_length=40, duplicates=0.03, seed=5
    )
    synthesize(directory, behaviour, missing_metadata=0.1)
    return directory


@pytest.fixture(scope="session")
def run_cli():
    """Run `merlin-sim ...` in this process; a MerlinSimError is what the runner returns."""

    def run(*arguments):
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def preprocess_log(run_cli):
    """Run `merlin-sim preprocess log` here; gives the dataset and what it printed.

    Columns are who, what and when, unless a fitted workflow names them.
    """
    columns = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")

    def run(output: Path, *options) -> tuple[Path, str]:
        given = () if "--fitted" in options else columns
        result = run_cli(
            "preprocess", "log", "--output_path", output, "--scheduler", "single", "--overwrite",
            *given, *options,
        )  # fmt: skip
        if result.exception:
            raise result.exception
        return output, result.output

    return run


@pytest.fixture(scope="session")
def preprocess(run_cli):
    def run(raw: Path, output: Path, *options) -> Path:
        result = run_cli(
            "preprocess", "amazon-books", "--amazon_dataset_path", raw, "--output_path", output,
            *options,
        )  # fmt: skip
        if result.exception:
            raise result.exception
        return output

    return run


@pytest.fixture(scope="session")
def dataset(raw, preprocess, tmp_path_factory):
    return preprocess(raw, tmp_path_factory.mktemp("datasets") / "dataset")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Small raw logs, and by a command's name the files of the dataset that one process makes."""
    raw = tmp_path_factory.mktemp("undisturbed")
    preprocess_runs.write_raw_logs(raw)
    datasets = {}
    with pytest.MonkeyPatch.context() as patched:
        preprocess_runs.cut_small(patched)
        for name in preprocess_runs.COMMANDS:
            preprocess_runs.preprocess(patched, raw, name, raw / name, SingleProcess(1))
            datasets[name] = preprocess_runs.all_bytes(raw / name)
    return raw, datasets
