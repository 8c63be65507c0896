"""A log of what was shown: rows with 1 were taken and join the history, rows with 0 were not."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from stored_samples import samples_of

pytestmark = pytest.mark.slow


def shown_log(users=30, rows=600, seed=0) -> pd.DataFrame:
    """Several rows have one time, and the log does not stand in the order of time."""
    random = np.random.default_rng(seed)
    item = random.integers(0, 25, rows)
    return pd.DataFrame(
        {
            "who": random.integers(0, users, rows),
            "what": item,
            "when": random.integers(0, 40, rows),
            "brand": item % 4,
            "clicked": (random.random(rows) < 0.3).astype(int),
        }
    )


def kept(log: pd.DataFrame, shortest=3) -> pd.DataFrame:
    """The rows of users who took enough."""
    taken = log[log["clicked"] == 1].groupby("who").size()
    return log[log["who"].isin(taken[taken >= shortest].index)]


def plain_samples(log: pd.DataFrame, longest=4, shortest=3) -> dict[str, Counter]:
    """Who, what, label and history of each sample, as a person reads the rules."""
    samples = {"train": Counter(), "test": Counter()}
    for who, rows in kept(log, shortest).sort_values("when", kind="stable").groupby("who"):
        for index, row in enumerate(rows.itertuples()):
            earlier = rows[(rows["when"] < row.when) & (rows["clicked"] == 1)]
            history = list(earlier["what"])
            sample = (who, row.what, row.clicked, tuple(history[-longest:]))
            if index == len(rows) - 1:
                samples["test"][sample] += 1
            elif history:
                samples["train"][sample] += 1
    return samples


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shown")
    shown_log().to_parquet(directory / "log.parquet", row_group_size=90)
    return directory


@pytest.fixture(scope="module")
def log_options():
    return (
        "--fit_on", "all",
        "--item_feature_columns", "brand", "--scheduler", "single",
        "--shortest_sequence_for_user", 3, "--max_sequence_length", 4,
        "--order_of_equal_times", "log", "--validation", "none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def labelled(make):
    return make("labelled", "--label_column", "clicked")


def test_taken_items_are_the_history_and_all_rows_are_samples(labelled):
    dataset, output = labelled
    expected = plain_samples(shown_log())
    for mapping in ("train", "test"):
        assert samples_of(dataset, mapping) == expected[mapping]
        frame = pd.read_parquet(dataset / mapping)
        assert frame["label"].dtype == np.int8
        assert (frame["what_pos"].map(len) == frame["what_neg"].map(len)).all()
    log = kept(shown_log())
    taken = log["clicked"].sum()
    assert 0 < len(log) < 600
    assert f"labels: {taken} taken (1), {len(log) - taken} shown and not taken (0)" in output
    for said in ("which is not read", "tells its label", "the file is sorted by it", "WARNING"):
        assert said not in output
    same = len(log) - len(log.drop_duplicates(["who", "when"]))
    assert same > 50
    assert (
        f"{same:,} have the time of an earlier one of their user: they stand in the order" in output
    )


def test_popularity_is_of_what_was_taken_in_rows_that_train(make):
    dataset, output = make("of train", "--label_column", "clicked", "--fit_on", "train")
    assert "fitted on: the rows that train (`--fit_on`)" in output
    table = pd.read_parquet(dataset / "categories/what.parquet")
    log = kept(shown_log()).sort_values("when", kind="stable")
    trains = log[log["who"].duplicated(keep="last")]  # each user's last row tests
    taken = trains[trains["clicked"] == 1]["what"].value_counts()
    assert table["count"].tolist() == [taken.get(key, 0) for key in table["key"]]


def test_negatives_that_are_asked_for_stand_beside_those_of_the_log(make, labelled):
    options = ("--label_column", "clicked", "--negatives", "uniform", "--negatives_per_positive", 3)
    dataset, _ = make("drawn", *options)
    before, after = samples_of(labelled[0], "train"), samples_of(dataset, "train")
    assert not before - after
    drawn = after - before
    assert {label for _, _, label, _ in drawn} == {0}
    histories = Counter()
    for (who, _, label, history), count in before.items():
        histories[who, history] += 3 * count * label
    per_history = Counter()
    for (who, _, _, history), count in drawn.items():
        per_history[who, history] += count
    assert per_history == +histories
    targets = [what for (_, what, _, _), count in drawn.items() for _ in range(count)]
    assert np.bincount(targets, minlength=25).min() > 0


def test_a_log_in_csv_is_read_alike_whatever_its_labels_are_called(make, files, labelled):
    words = {0: ["0", "0.0", "False", "false"], 1: ["1", "1.0", "True", " true"]}
    log = shown_log()
    log["clicked"] = [words[label][n % 4] for n, label in enumerate(log["clicked"])]
    log.to_csv(files / "words.csv", index=False)
    dataset, _ = make("csv", "--label_column", "clicked", log="words.csv")
    found = Counter()
    for (who, what, label, history), count in samples_of(dataset, "train").items():
        found[int(who), int(what), label, tuple(map(int, history))] = count
    assert found == samples_of(labelled[0], "train")


def test_a_log_with_one_taken_item_is_refused_where_negatives_are_others(make, refuse, files):
    log = shown_log()
    log["clicked"] = (log["what"] == 3).astype(int)
    log.to_parquet(files / "one.parquet")
    short = ("--label_column", "clicked", "--shortest_sequence_for_user", 1)
    said = refuse(*short, log="one.parquet")
    assert "one.parquet: column 'what': expected taken items (label 1) with at least" in said
    assert "found only 3" in said
    make("uniform", *short, "--negatives", "uniform", log="one.parquet")


@pytest.mark.parametrize(("wrong", "found"), [(2, "2"), (0.5, "0.5"), (None, "n(an|othing)")])
def test_bad_labels_are_refused_with_file_and_row(refuse, files, wrong, found):
    log = shown_log()
    log["clicked"] = log["clicked"].astype(float)
    log.loc[6, "clicked"] = wrong
    log.to_parquet(files / "wrong.parquet")
    said = refuse("--label_column", "clicked", log="wrong.parquet")
    assert re.search(f"wrong.parquet, line 7: 'clicked': expected 0 or 1, found {found}", said)


def test_bad_labels_in_csv_are_left_out_and_counted_on_request(make, refuse, files):
    log = shown_log().astype({"clicked": str})
    log.loc[3, "clicked"], log.loc[8, "clicked"] = "yes", ""
    log.to_csv(files / "yes.csv", index=False)
    label = ("--label_column", "clicked")
    said = refuse(*label, log="yes.csv")
    assert "yes.csv, line 5: 'clicked': expected 0 or 1, found 'yes'" in said
    _, output = make("yes", *label, "--on_bad_rows", "skip", log="yes.csv")
    assert "2 bad rows left out (line 5" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--negatives", "none"), "needs a column of labels (`--label_column`)"),
        (("--negatives_per_positive", 0), "`negatives_per_positive` should be at least 1"),
        (("--label_column", "clicked", "--negatives_per_positive", 2), "needs --negatives"),
        (("--label_column", "pressed"), "expected a column 'pressed', found only"),
        (("--label_column", "what"), "different from each other"),
    ],
)
def test_what_cannot_be_is_refused(refuse, options, message):
    assert message in refuse(*options)
