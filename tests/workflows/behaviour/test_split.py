"""Splits by time, by users and by given files: whose a sample is, and what it sees."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from stored_samples import rows_of, samples_of

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.steps.sample_batch import SampleBatch
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fitted_record import number_records
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow
from merlin_sim.workflows.rules import Split

pytestmark = pytest.mark.slow

PARTS = ("train", "validation", "test")
BORDERS = {"first": (0, 60), "validation": (60, 80), "test": (80, 100)}
"""Name of a file -> the times that it has."""


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
    ).sort_values("when", kind="stable", ignore_index=True)


def plain_split(log, mapping_of) -> dict[str, Counter]:
    """The positive samples of each part, as a person reads the rules."""
    found = {}
    for who, rows in log.groupby("who"):
        items = rows["what"].tolist()
        for index, when in enumerate(rows["when"]):
            if index:
                sample = (who, items[index], 1, tuple(items[:index]))
                found.setdefault(mapping_of(who, when), Counter())[sample] += 1
    return found


NONE, NEWEST = ("--validation", "none"), ("--validation", "newest")


def by_time(who, when):
    return "train" if when < 60 else "validation" if when < 80 else "test"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("split")
    log = some_log()
    log.to_parquet(directory / "log.parquet", row_group_size=130)
    for name, (first, stop) in BORDERS.items():
        log[log["when"].between(first, stop - 1)].to_parquet(directory / f"{name}.parquet")
    return directory


@pytest.fixture(scope="module")
def log_options():
    return (
        "--fit_on", "all",
        "--scheduler", "single", "--shortest_sequence_for_user", 3,
        "--order_of_equal_times", "log", "--validation", "none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def given(files):
    """The options of files that validate and test."""
    parts = ("--validation_path", files / "validation.parquet", "--test_path")
    return (*NEWEST, *parts, files / "test.parquet")


@pytest.fixture(scope="module")
def timed(make):
    return make("timed", *NEWEST, "--test_from", 80, "--validation_from", 60)[0]


@pytest.fixture(scope="module")
def by_files(make, given):
    return make("given", *given, log="first.parquet")[0]


def test_a_time_or_files_part_the_samples(timed, by_files):
    expected = plain_split(some_log(), by_time)
    assert set(expected) == set(PARTS)
    for mapping, samples in expected.items():
        assert samples_of(timed, mapping, label=1) == samples
        assert rows_of(timed, mapping) == rows_of(by_files, mapping)
    for dataset in (timed, by_files):
        assert list(DatasetDirectory.open(dataset).spec.source_spec) == [*PARTS]
    fitted = FittedWorkflow.load(timed)
    for mapping in PARTS:
        assert len(fitted.samples(some_log(), mapping)) == 2 * sum(expected[mapping].values())
    with pytest.raises(ValueError, match="`mapping` should be"):
        fitted.samples(some_log(), "tests")


def test_users_rows_know_the_same_samples(make, run_cli, files, given, by_files):
    users, _ = make("users", *given, "--layout", "users", log="first.parquet")
    result = run_cli("data", "transcode", "--input", users, "--output", files / "made")
    assert result.exit_code == 0, result.output
    for mapping in PARTS:
        path = f"{mapping}/part.0.parquet"
        assert (files / "made" / path).read_bytes() == (by_files / path).read_bytes()


def test_users_may_be_parted_by_their_keys(make):
    dataset, _ = make("shares", *NEWEST, "--test_users", 0.3)

    def users_of(dataset, mapping):
        return {who for who, *_ in samples_of(dataset, mapping)}

    users = {mapping: users_of(dataset, mapping) for mapping in PARTS}
    assert sum(map(len, users.values())) == len(set.union(*users.values())) == 25
    of = {who: mapping for mapping, members in users.items() for who in members}
    expected = plain_split(some_log(), lambda who, when: of[who])
    for mapping in users:
        assert samples_of(dataset, mapping, label=1) == expected[mapping]
    seeded, _ = make("seeded", *NEWEST, "--test_users", 0.3, "--seed", 1)
    assert users_of(seeded, "test") != users["test"]


def test_users_without_an_id_draw_negatives_of_their_own(make):
    """By `--test_users` no user who tests or validates is fitted on: all have the id 0."""
    shares = (*NEWEST, "--test_users", 0.3, "--validation_users", 0.2, "--fit_on", "train")
    dataset = DatasetDirectory.open(make("unfitted", *shares, "--layout", "users")[0])
    stored, _ = make("unfitted rows", *shares)
    columns, drawn = ["who", "what_trgt", "what_pos", "label"], {}
    for mapping, candidates in itertools.product(PARTS[1:], (1, 4)):
        loader = open_loader(dataset, mapping, columns, 64, Ranks(), candidates=candidates)
        drawn[mapping] = []
        for given in loader.inputs():
            batch = SampleBatch(*loader.whole(given))
            users, items = (batch.counted(batch.column(n).numpy()) for n in columns[:2])
            assert not users.any()
            drawn[mapping] += items[batch.counted(batch.flat()[0].numpy()) == 0].tolist()
        frame = pd.read_parquet(stored / mapping)
        assert sorted(frame[frame["label"] == 0]["what_trgt"]) == sorted(drawn[mapping])
        runs = 1 + np.count_nonzero(np.diff(frame["label"]))
        assert len(frame) / 3 < runs  # the labels alternate as those of a coin do
    # A user has some twenty positions: one draw for each of them would give so many items.
    assert len(set(drawn["test"])) > 25
    assert Counter(drawn["test"]) != Counter(drawn["validation"])


def test_about_so_many_users_test_the_same_ones_of_any_log():
    keys = pa.array([f"user {n}" for n in range(4000)])
    parts = Split(test_users=0.1, validation_users=0.3).parts(keys, pa.array(np.zeros(4000)))
    np.testing.assert_allclose(np.bincount(parts) / 4000, [0.6, 0.3, 0.1], atol=0.03)
    alone = Split(test_users=0.1).parts(keys, pa.array(np.zeros(4000)))
    np.testing.assert_array_equal(alone == 1, parts == 2)
    some = Split(test_users=0.1, validation_users=0.3).parts(keys[7:90], pa.array(np.zeros(83)))
    np.testing.assert_array_equal(some, parts[7:90])  # a user's key decides, whatever the log


def test_users_may_be_parted_by_files(make, files):
    """The same times in both, and one user in each."""
    log = some_log()
    log[log["who"] < 15].to_csv(files / "few.csv", index=False)
    log[log["who"] >= 15].to_csv(files / "others.csv", index=False)
    dataset, _ = make("parted", "--test_path", files / "others.csv", log="few.csv")
    train, test = ({int(who) for who, *_ in samples_of(dataset, m)} for m in ("train", "test"))
    assert train <= set(range(15)) and test <= set(range(15, 25))
    assert len(train) > 10


def test_labels_are_parted_too(make, given):
    dataset, _ = make("labels", "--label_column", "clicked", "--test_from", " 80 ")
    log = some_log()
    taken = log[log["clicked"] == 1].groupby("who").size()
    log = log[log["who"].isin(taken[taken >= 3].index)]
    clicks = log.groupby(["who", "when"])["clicked"].sum()
    earlier = clicks.groupby("who").cumsum() - clicks  # those of its own time are not before it
    before = log.join(earlier.rename("before"), on=["who", "when"])["before"]
    wanted = log[(log["when"] >= 80) & (before > 0)]
    frame = pd.read_parquet(dataset / "test")
    assert len(frame) == len(wanted)
    assert frame["label"].sum() == wanted["clicked"].sum()
    assert sorted(frame["what_pos"].map(len)) == sorted(before[wanted.index])
    of_files, _ = make("labels of files", "--label_column", "clicked", *given, log="first.parquet")
    assert rows_of(of_files, "test") == rows_of(dataset, "test")


@pytest.mark.parametrize(
    ("unit", "given"), [("h", "2024-03-01 06:00"), ("d", "2024-03-01")], ids=["date", "day"]
)
def test_a_time_is_given_as_the_log_has_it(make, files, unit, given):
    log, day = some_log(), pd.Timestamp("2024-03-01")
    since = log["when"] - (74 if unit == "h" else 80)  # 80 is six o'clock, or that day
    log["when"] = day + pd.to_timedelta(since, unit)
    if unit == "d":
        log["when"] = log["when"].dt.date
    log.to_parquet(files / "kinds.parquet")
    dataset, _ = make("kinds", "--test_from", given, log="kinds.parquet")
    assert samples_of(dataset, "test", label=1) == plain_split(some_log(), by_time)["test"]


def test_amazons_seconds_may_be_given_as_a_date(raw_writer, preprocess, tmp_path):
    reviews = [("u", "abcd"[day % 4], 946_684_800 + day * 86_400) for day in range(40)]
    raw = raw_writer(tmp_path / "raw", reviews, [("a", [["A"]])])
    dataset = preprocess(raw, tmp_path / "dataset", "--test_from", "2000-01-31")
    assert len(pd.read_parquet(dataset / "test")) == 2 * 10


def test_the_fitted_split_is_kept_unless_another_is_given(make, timed):
    again, _ = make("next", "--fitted", timed)
    for mapping in PARTS:
        assert samples_of(again, mapping) == samples_of(timed, mapping)
    other, _ = make("other", "--fitted", timed, "--test_from", 70, *NONE)
    expected = plain_split(some_log(), lambda _, when: "train" if when < 70 else "test")
    assert samples_of(other, "test", label=1) == expected["test"]
    assert not (other / "validation").exists()


def test_a_fitted_split_by_files_needs_files_again(make, refuse, given, by_files):
    said = refuse("--fitted", by_files, log="first.parquet")
    assert "a split by given files, expected its files too (`--test_path`)" in said
    last = ("--fitted", by_files, "--test_users", 0, "--layout", "users")
    make("last", *last, log="first.parquet")
    again, _ = make("again", "--fitted", by_files, *given, log="first.parquet")
    assert rows_of(again, "test") == rows_of(by_files, "test")
    with pytest.raises(MerlinSimError, match="was split by given files"):
        FittedWorkflow.load(by_files).samples(some_log(), "test")
    assert len(FittedWorkflow.load(by_files).histories().transform(some_log())) == 25


def test_numbers_are_fitted_on_the_files_that_train(make, files, given):
    (files / "features.yaml").write_text(
        "features: {spent: {type: number, of: interaction, operators: [Normalize]}}\n"
    )
    features = ("--features", files / "features.yaml", "--fit_on", "train")
    dataset, _ = make("numbers", *features, *given, "--layout", "users", log="first.parquet")
    (normalize,) = number_records(json.loads((dataset / "workflow.json").read_text()))["spent"]
    spent = some_log().query("when < 60")["spent"]
    assert normalize["learned"]["means"]["spent"] == pytest.approx(spent.mean())


def test_files_may_go_on_from_earlier_histories(make, files):
    old, _ = make("old", log="first.parquet")
    options = ("--fitted", old, "--history", old)
    of_files, _ = make("going on", *options, "--test_path", files / "test.parquet",
                       log="validation.parquet")  # fmt: skip
    both = pd.concat([pd.read_parquet(files / f"{n}.parquet") for n in ("validation", "test")])
    both.to_parquet(files / "both.parquet")
    timed, _ = make("timed on", *options, "--test_from", 80, log="both.parquet")
    for mapping in ("train", "test"):
        assert rows_of(of_files, mapping) == rows_of(timed, mapping)


def test_parts_that_do_not_follow_each_other_are_refused(refuse, files):
    """A sample that trains would have what tests in its history."""
    log = some_log()
    log[::2].to_parquet(files / "even.parquet")
    log[1::2].to_parquet(files / "odd.parquet")
    said = refuse("--test_path", files / "odd.parquet", log="even.parquet")
    assert "expected that a user's interactions of test come after" in said
    assert "found one of user " in said


def test_validation_none_leaves_out_the_part_of_a_fitted_split(make, timed):
    dataset, _ = make("none validates", "--fitted", timed, *NONE)
    assert rows_of(dataset, "test") == rows_of(timed, "test")
    assert not (dataset / "validation").exists()
    both = rows_of(timed, "train") + rows_of(timed, "validation")
    assert rows_of(dataset, "train") == both


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--test_from", 80, "--validation_from", 60, *NONE), "--validation none: expected no par"),
        (
            ("--test_path", "test.parquet", "--validation_path", "validation.parquet", *NONE),
            "--validation none: expected no part that validates, got --validation_path",
        ),
        (("--test_from", 80, "--test_users", 0.1), "One of `test_from`, `test_users`, `test_files"),
        (("--validation_from", 80), "`validation_from` needs `test_from`"),
        (("--validation_users", 0.1), "`validation_users` needs `test_users`"),
        (("--test_users", 0.6, "--validation_users", 0.5), "together below 1"),
        (("--test_from", 60, "--validation_from", 60), "should be earlier than `test_from`"),
        (("--test_from", "2024-06-01"), "`--test_from`: expected a whole number, as column 'when'"),
        (("--test_from", 1000), "expected samples in test, found none: the split (test_from 1000)"),
        (("--test_from", 0), "expected samples in train, found none"),
        (("--validation_path", "test.parquet"), "--validation_path needs --test_path"),
        (("--test_path", "log.parquet"), "Received more than once:"),
        (("--test_path", "link.parquet"), "Received more than once:"),
        (("--test_path", "none.parquet"), "none.parquet: no such file"),
        (("--test_path", "test.parquet", "--test_from", 80), "Received: test_from and test_files"),
        (("--test_path", "test.csv"), "CSV files (.csv, .csv.gz) or parquet files, not both"),
    ],
)
def test_a_split_that_cannot_be_is_refused(refuse, files, options, message):
    pd.read_parquet(files / "test.parquet").to_csv(files / "test.csv", index=False)
    with contextlib.suppress(FileExistsError):
        (files / "link.parquet").symlink_to("log.parquet")
    named = (".parquet", ".csv")
    options = (files / o if str(o).endswith(named) else o for o in (*NEWEST, *options))
    assert message in refuse(*options)


def test_a_split_that_leaves_no_row_of_the_kept_users_to_fit_on_is_refused(refuse, files):
    log = some_log(60, 3).assign(when=80)
    early = pd.DataFrame({"who": [7], "what": [1], "when": [1], "clicked": [1], "spent": [1.0]})
    pd.concat([log, early]).to_parquet(files / "late.parquet")
    said = refuse("--test_from", 60, "--fit_on", "train", log="late.parquet")
    assert "expected samples in train, found none: no row" in said
    assert "late.parquet" in said


def test_a_split_of_the_day_before_says_what_to_do(make, refuse, files):
    """The daily recipe, of a dataset that was split by a time."""
    log = some_log()
    log["when"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(log["when"], "h")
    half, split = log["when"].iloc[len(log) // 2], "2024-03-02T16:00:00"
    log[log["when"] < half].to_parquet(files / "monday.parquet")
    log[log["when"] >= half].to_parquet(files / "tuesday.parquet")
    monday, _ = make("monday", "--test_from", split, log="monday.parquet")
    goes_on = ("--fitted", monday, "--history", monday)
    said = refuse(*goes_on, log="tuesday.parquet")
    assert f"expected samples in train, found none: the split (test_from {split})" in said
    assert "every row of the log is of the time of `test_from` or later" in said
    assert "split is that of the fitted workflow" in said
    assert "`--test_users 0` for each user's last interaction" in said
    assert "enough before it" not in said
    tuesday, _ = make("tuesday", *goes_on, "--test_users", 0, log="tuesday.parquet")
    assert FittedWorkflow.load(tuesday).rules.split is None
    late = refuse("--test_from", "2025-01-01", log="tuesday.parquet")
    assert "every row of the log is before `test_from`" in late
    assert "fitted workflow" not in late
