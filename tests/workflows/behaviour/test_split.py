"""Splits by time and by users: whose a sample is, and what it sees."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow
from merlin_sim.workflows.rules import Split

pytestmark = pytest.mark.slow

OPTIONS = (
    "--fit_on", "all",
    "--scheduler", "single", "--shortest_sequence_for_user", 3,
    "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip


def some_log(rows=500, users=25, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": random.integers(0, users, rows),
            "what": random.integers(0, 30, rows),
            "when": random.integers(0, 100, rows),
            "clicked": random.integers(0, 2, rows),
        }
    )


def plain_split(log, mapping_of, least=1) -> dict[str, list]:
    """Who, what and history of each positive sample, as a person reads the rules."""
    found = {}
    for who, rows in log.sort_values("when", kind="stable").groupby("who"):
        items = rows["what"].tolist()
        for place, when in enumerate(rows["when"]):
            if place >= least:
                sample = (who, items[place], tuple(items[:place]))
                found.setdefault(mapping_of(who, when), []).append(sample)
    return {mapping: sorted(samples) for mapping, samples in found.items()}


def stored(dataset, mapping) -> list:
    frame = pd.read_parquet(dataset / mapping).query("label == 1")
    who, what = (
        dict(pd.read_parquet(dataset / f"categories/{name}.parquet")[["id", "key"]].values)
        for name in ("who", "what")
    )
    return sorted(
        (who[row.who], what[row.what_trgt], tuple(what[item] for item in row.what_pos))
        for row in frame.itertuples()
    )


def by_time(who, when):
    return "train" if when < 60 else "validation" if when < 80 else "test"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("split")
    some_log().to_parquet(directory / "log.parquet", row_group_size=130)
    return directory


@pytest.fixture(scope="module")
def log_options():
    return OPTIONS


@pytest.fixture(scope="module")
def timed(run, files):
    result = run("timed", "--test_from", 80, "--validation_from", 60)
    assert result.exit_code == 0, result.output
    return files / "timed"


def test_a_time_parts_the_samples(timed):
    expected = plain_split(some_log(), by_time)
    assert set(expected) == {"train", "validation", "test"}
    for mapping, samples in expected.items():
        assert stored(timed, mapping) == samples
    assert list(DatasetDirectory.open(timed).spec.source_spec) == ["train", "validation", "test"]


def test_users_rows_know_the_same_samples(run, files, timed, run_cli):
    options = ("--test_from", 80, "--validation_from", 60, "--layout", "users")
    assert run("users", *options).exit_code == 0
    result = run_cli("data", "transcode", "--input", files / "users", "--output", files / "made")
    assert result.exit_code == 0, result.output
    for path in ("train/part.0.parquet", "validation/part.0.parquet", "test/part.0.parquet"):
        assert (files / "made" / path).read_bytes() == (timed / path).read_bytes()


def test_users_may_be_parted(run, files):
    shares = ("--test_users", 0.3, "--validation_users", 0.2)
    assert run("shares", *shares).exit_code == 0
    users = {
        m: {who for who, _, _ in stored(files / "shares", m)}
        for m in ("train", "validation", "test")
    }
    assert not users["train"] & users["test"] | users["train"] & users["validation"]
    assert len(set.union(*users.values())) == 25
    of = {who: mapping for mapping, members in users.items() for who in members}
    expected = plain_split(some_log(), lambda who, when: of[who])
    for mapping in users:
        assert stored(files / "shares", mapping) == expected[mapping]
    # A user's key decides, so another log has the same users there.
    some_log(seed=1, rows=400).to_parquet(files / "other.parquet")
    assert run("again", *shares, log="other.parquet").exit_code == 0
    assert {who for who, _, _ in stored(files / "again", "test")} <= users["test"]
    assert run("seeded", *shares, "--seed", 1).exit_code == 0
    assert {who for who, _, _ in stored(files / "seeded", "test")} != users["test"]


def test_about_so_many_users_test():
    keys = pa.array([f"user {n}" for n in range(4000)])
    parts = Split(test_users=0.1, validation_users=0.3).parts(keys, pa.array(np.zeros(4000)))
    np.testing.assert_allclose(np.bincount(parts) / 4000, [0.6, 0.3, 0.1], atol=0.03)
    alone = Split(test_users=0.1).parts(keys, pa.array(np.zeros(4000)))
    np.testing.assert_array_equal(alone == 1, parts == 2)


def test_labels_are_parted_too(run, files):
    result = run("labels", "--label_column", "clicked", "--test_from", "80")
    assert result.exit_code == 0, result.output
    log = some_log()
    taken = log[log["clicked"] == 1].groupby("who").size()
    log = log[log["who"].isin(taken[taken >= 3].index)].sort_values("when", kind="stable")
    clicks = log.groupby(["who", "when"])["clicked"].sum()
    earlier = clicks.groupby("who").cumsum() - clicks  # those of its own time are not before it
    before = log.join(earlier.rename("before"), on=["who", "when"])["before"]
    wanted = log[(log["when"] >= 80) & (before > 0)]
    frame = pd.read_parquet(files / "labels/test")
    assert len(frame) == len(wanted)
    assert frame["label"].sum() == wanted["clicked"].sum()
    assert sorted(frame["what_pos"].map(len)) == sorted(before[wanted.index])


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("date in csv", "2024-03-01 06:00:00"),
        ("date in parquet", "2024-03-01 06:00"),
        ("day in parquet", "2024-03-01"),
        ("number in csv", " 80 "),
    ],
)
def test_a_time_is_given_as_the_log_has_it(run, files, kind, given):
    log = some_log()
    day = pd.Timestamp("2024-03-01")
    if kind != "number in csv":
        hours = log["when"] - 74  # 80 is six o'clock
        log["when"] = day + pd.to_timedelta(hours, "h")
    if kind == "day in parquet":
        log["when"] = (day + pd.to_timedelta(some_log()["when"] - 80, "d")).dt.date
    name = "kinds." + kind.split()[-1]
    if name.endswith("csv"):
        log.to_csv(files / name, index=False)
    else:
        log.to_parquet(files / name)
    result = run("kinds", "--test_from", given, "--overwrite", log=name)
    assert result.exit_code == 0, result.output
    expected = plain_split(some_log(), by_time)
    found = [
        (int(who), int(what), tuple(map(int, h)))
        for who, what, h in stored(files / "kinds", "test")
    ]
    assert sorted(found) == expected["test"]


def test_the_fitted_split_is_kept_unless_another_is_given(run, files, timed):
    assert run("next", "--fitted", timed).exit_code == 0
    for mapping in ("train", "validation", "test"):
        assert stored(files / "next", mapping) == stored(timed, mapping)
    assert run("other", "--fitted", timed, "--test_from", 70).exit_code == 0
    expected = plain_split(some_log(), lambda _, when: "train" if when < 70 else "test")
    assert stored(files / "other", "test") == expected["test"]
    assert not (files / "other/validation").exists()
    assert run("last", "--fitted", timed, "--test_users", 0).exit_code == 0
    assert len(stored(files / "last", "test")) == 25
    assert FittedWorkflow.load(files / "last").rules.split is None


def test_a_loaded_workflow_parts_frames_alike(timed):
    fitted = FittedWorkflow.load(timed)
    for mapping in ("train", "validation", "test"):
        made = fitted.samples(some_log(), mapping)
        assert len(made) == len(pd.read_parquet(timed / mapping))
    with pytest.raises(ValueError, match="`mapping` should be"):
        fitted.samples(some_log(), "tests")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--test_from", 80, "--test_users", 0.1),
            "One of `test_from`, `test_users`, `test_files`",
        ),
        (("--validation_from", 80), "`validation_from` needs `test_from`"),
        (("--validation_users", 0.1), "`validation_users` needs `test_users`"),
        (("--test_users", 0.6, "--validation_users", 0.5), "together below 1"),
        (("--test_from", 60, "--validation_from", 60), "should be earlier than `test_from`"),
        (("--test_from", "2024-06-01"), "`--test_from`: expected a whole number, as column 'when'"),
        (("--test_from", 1000), "expected samples in test, found none: the split (test_from 1000)"),
        (("--test_from", 0), "expected samples in train, found none"),
    ],
)
def test_a_split_that_cannot_be_is_refused(run, files, options, message):
    result = run("refused", *options)
    assert isinstance(result.exception, MerlinSimError)
    assert message in str(result.exception)
    assert not (files / "refused").exists()


def test_a_split_that_leaves_no_row_of_the_kept_users_to_fit_on_is_refused(run, files):
    log = some_log(60, 3).assign(when=80)
    early = pd.DataFrame({"who": [7], "what": [1], "when": [1], "clicked": [1]})
    pd.concat([log, early]).to_parquet(files / "late.parquet")
    result = run("refused", "--test_from", 60, "--fit_on", "train", log="late.parquet")
    assert isinstance(result.exception, MerlinSimError)
    assert "expected samples in train, found none: no row" in str(result.exception)
    assert "late.parquet" in str(result.exception)
    assert not (files / "refused").exists()


def test_amazons_seconds_may_be_given_as_a_date(raw, preprocess, tmp_path):
    times = pd.read_json(raw / "reviews_Books.json", lines=True)["unixReviewTime"]
    date = pd.Timestamp(times.quantile(0.8), unit="s").strftime("%Y-%m-%d")
    made = [
        preprocess(raw, tmp_path / name, "--test_from", time)
        for name, time in (("date", date), ("seconds", int(pd.Timestamp(date).timestamp())))
    ]
    first, second = (path / "test/part.0.parquet" for path in made)
    assert first.read_bytes() == second.read_bytes()
    assert len(pd.read_parquet(first)) > 100


@pytest.mark.parametrize("dates", [False, True])
def test_a_split_of_the_day_before_says_what_to_do(run, run_cli, files, tmp_path, dates):
    """The daily recipe, of a dataset that was split by a time."""
    log = some_log()
    split = 40
    if dates:
        start, split = pd.Timestamp("2024-03-01"), "2024-03-02T16:00:00"
        log["when"] = start + pd.to_timedelta(log["when"], "h")
    half = log["when"].sort_values().iloc[len(log) // 2]
    log[log["when"] < half].to_parquet(files / "monday.parquet")
    log[log["when"] >= half].to_parquet(files / "tuesday.parquet")
    more = ("--test_from", split, "--overwrite")
    assert run("monday", *more, log="monday.parquet").exit_code == 0
    goes_on = ("--fitted", files / "monday", "--history", files / "monday", "--overwrite")
    result = run("tuesday", *goes_on, log="tuesday.parquet")
    message = str(result.exception)
    assert f"expected samples in train, found none: the split (test_from {split})" in message
    assert "every row of the log is of the time of `test_from` or later" in message
    assert "split is that of the fitted workflow" in message
    assert "`--test_users 0` for each user's last interaction" in message
    assert "enough before it" not in message
    assert run("tuesday", *goes_on, "--test_users", 0, log="tuesday.parquet").exit_code == 0
    late = run("late", "--test_from", "2025-01-01" if dates else 1000, log="tuesday.parquet")
    assert "every row of the log is before `test_from`" in str(late.exception)
    assert "fitted workflow" not in str(late.exception)
