"""Given files as a split: whose a row is, its file says."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pandas as pd
import pytest
from rows_without_order import rows_of

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fitted_record import fitted_features
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

OPTIONS = (
    "--fit_on", "all",
    "--scheduler", "single", "--shortest_sequence_for_user", 3,
    "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip
BORDERS = {"log": (0, 60), "validation": (60, 80), "test": (80, 100)}


def some_log(rows=500, users=25, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": random.integers(0, users, rows),
            "what": random.integers(0, 30, rows),
            "when": random.integers(0, 100, rows),
            "clicked": random.integers(0, 2, rows),
            "spent": random.integers(0, 100, rows) / 4,
        }
    ).sort_values("when", kind="stable")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    log = some_log()
    log.to_parquet(directory / "whole.parquet")
    for name, (first, stop) in BORDERS.items():
        log[log["when"].between(first, stop - 1)].to_parquet(directory / f"{name}.parquet")
    return directory


@pytest.fixture(scope="module")
def log_options():
    return OPTIONS


@pytest.fixture(scope="module")
def given(files):
    parts = ("--validation_path", files / "validation.parquet", "--test_path")
    return (*parts, files / "test.parquet")


@pytest.mark.parametrize("options", [(), ("--label_column", "clicked")], ids=["plain", "labels"])
def test_files_part_samples_as_their_times_would(run, files, given, options):
    assert run("given", *options, *given, "--overwrite").exit_code == 0
    times = ("--validation_from", 60, "--test_from", 80)
    assert run("timed", *options, *times, "--overwrite", log="whole.parquet").exit_code == 0
    for mapping in ("train", "validation", "test"):
        found = rows_of(files / "given", mapping)
        assert found == rows_of(files / "timed", mapping)
        assert found
    assert list(DatasetDirectory.open(files / "given").spec.source_spec) == [
        "train", "validation", "test",
    ]  # fmt: skip


def test_users_rows_know_the_same_samples(run, run_cli, files, given):
    assert run("samples", *given).exit_code == 0
    assert run("users", *given, "--layout", "users").exit_code == 0
    assert (
        run_cli(
            "data", "transcode", "--input", files / "users", "--output", files / "made"
        ).exit_code
        == 0
    )
    for path in ("train/part.0.parquet", "validation/part.0.parquet", "test/part.0.parquet"):
        assert (files / "made" / path).read_bytes() == (files / "samples" / path).read_bytes()


def test_users_may_be_parted_by_files(run, files):
    """The same times in both, and one user in each."""
    log = some_log()
    log[log["who"] < 15].to_csv(files / "few.csv", index=False)
    log[log["who"] >= 15].to_csv(files / "others.csv", index=False)
    assert run("parted", "--test_path", files / "others.csv", log="few.csv").exit_code == 0
    who = pd.read_parquet(files / "parted/categories/who.parquet").set_index("id")["key"]
    users = {m: {int(who[u]) for u in pd.read_parquet(files / "parted" / m)["who"]}
             for m in ("train", "test")}  # fmt: skip
    assert users["train"] <= set(range(15)) and users["test"] <= set(range(15, 25))
    assert len(users["train"]) > 10


def test_several_files_may_test(run, files):
    paths = [files / f"{name}.parquet" for name in ("validation", "test")]
    options = [option for path in paths for option in ("--test_path", path)]
    assert run("several", *options).exit_code == 0
    assert run("late", "--test_from", 60, log="whole.parquet").exit_code == 0
    assert rows_of(files / "several", "test") == rows_of(files / "late", "test")


def test_numbers_are_fitted_on_the_files_that_train(run, files, given):
    (files / "features.yaml").write_text(
        "features: {spent: {type: number, of: interaction, operators: [Normalize]}}\n"
    )
    features = ("--features", files / "features.yaml")
    assert run("numbers", *features, *given).exit_code == 0
    times = ("--validation_from", 60, "--test_from", 80)
    assert run("timed numbers", *features, *times, log="whole.parquet").exit_code == 0
    names = ("numbers", "timed numbers")
    documents = [json.loads((files / name / "workflow.json").read_text()) for name in names]
    learned = [*map(fitted_features, documents)]
    assert learned[0] == learned[1]
    assert rows_of(files / "numbers", "test") == rows_of(files / "timed numbers", "test")


def test_a_fitted_split_by_files_needs_files_again(run, files, given):
    assert run("first", *given).exit_code == 0
    message = str(run("next", "--fitted", files / "first").exception)
    assert "a split by given files, expected its files too (`--test_path`)" in message
    assert run("next", "--fitted", files / "first", "--test_users", 0).exit_code == 0
    assert run("again", "--fitted", files / "first", *given).exit_code == 0
    assert rows_of(files / "again", "test") == rows_of(files / "first", "test")
    with pytest.raises(MerlinSimError, match="was split by given files"):
        FittedWorkflow.load(files / "first").samples(some_log(), "test")
    assert len(FittedWorkflow.load(files / "first").histories().transform(some_log())) == 25


def test_files_may_go_on_from_earlier_histories(run, files, given):
    assert run("old").exit_code == 0
    options = ("--fitted", files / "old", "--history", files / "old")
    parts = ("--test_path", files / "test.parquet")
    assert run("going on", *options, *parts, log="validation.parquet").exit_code == 0
    both = pd.concat([pd.read_parquet(files / f"{n}.parquet") for n in ("validation", "test")])
    both.to_parquet(files / "both.parquet")
    assert run("timed on", *options, "--test_from", 80, log="both.parquet").exit_code == 0
    for mapping in ("train", "test"):
        assert rows_of(files / "going on", mapping) == rows_of(files / "timed on", mapping)


def test_parts_that_do_not_follow_each_other_are_refused(run, files, given):
    """A sample that trains would have what tests in its history."""
    log = some_log()
    log[::2].to_parquet(files / "even.parquet")
    log[1::2].to_parquet(files / "odd.parquet")
    message = str(
        run("refused", "--test_path", files / "odd.parquet", log="even.parquet").exception
    )
    assert "expected that a user's interactions of test come after" in message
    assert "found one of user " in message
    assert not (files / "refused").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--validation_path", "test.parquet"), "--validation_path needs --test_path"),
        (("--test_path", "log.parquet"), "Received more than once:"),
        (("log.parquet",), "Received more than once:"),
        (("--test_path", "link.parquet"), "Received more than once:"),
        (("--test_path", "none.parquet"), "none.parquet: no such file"),
        (("--test_path", "test.parquet", "--test_from", 80), "Received: test_from and test_files"),
        (("--test_path", "test.csv"), "CSV files (.csv, .csv.gz) or parquet files, not both"),
    ],
)
def test_what_cannot_be_is_refused(run, files, options, message):
    pd.read_parquet(files / "test.parquet").to_csv(files / "test.csv", index=False)
    options = [files / option if "." in str(option) else option for option in options]
    with contextlib.suppress(FileExistsError):
        (files / "link.parquet").symlink_to("log.parquet")
    result = run("refused", *options)
    assert message in str(result.exception) + result.output
    assert result.exit_code != 0
    assert not (files / "refused").exists()
