"""A log of several behaviours: which make history, which are predicted, and what the rest do."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from stored_samples import samples_of

from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

DID = ("--behaviour_column", "did")
HISTORY = ("view", "cart")
TARGET = ("cart", "buy")
NAMED = (*DID, "--history_behaviours", "view,cart", "--target_behaviours", "cart,buy")


def some_log(users=20, rows=700, seed=0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": random.integers(0, users, rows),
            "what": random.integers(0, 25, rows),
            "when": random.integers(0, 60, rows),
            "did": random.choice(["view", "cart", "buy", "hide"], rows, p=[0.5, 0.2, 0.2, 0.1]),
            "clicked": random.integers(0, 2, rows),
            "spent": random.integers(0, 100, rows) / 4,
        }
    )


def of_user(log: pd.DataFrame, history=HISTORY, shortest=3):
    """Each user's rows in the order of time, of those who have enough history."""
    for who, rows in log.sort_values("when", kind="stable").groupby("who"):
        if rows["did"].isin(history).sum() >= shortest:
            yield who, rows


def plain_samples(log, history=HISTORY, target=TARGET, longest=4, labelled=False):
    """Who, what, label and history of each row of the log, as a person reads the rules."""
    samples = {"train": Counter(), "test": Counter()}
    for who, rows in of_user(log, history):
        seen, found = [], []
        for row in rows.itertuples():
            if row.did in target:
                label = row.clicked if labelled else 1
                if labelled:  # before its own time
                    before = rows[rows["when"] < row.when]
                    before = before[before["did"].isin(history) & (before["clicked"] == 1)]
                    seen = list(before["what"])
                found.append((len(seen), (who, row.what, label, tuple(seen[-longest:]))))
            if row.did in history and not labelled:
                seen.append(row.what)
        for index, (before, sample) in enumerate(found):
            if index == len(found) - 1:
                samples["test"][sample] += 1
            elif before:
                samples["train"][sample] += 1
    return samples


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("behaviours")
    some_log().to_parquet(directory / "log.parquet", row_group_size=150)
    return directory


@pytest.fixture(scope="module")
def log_options():
    return (
        "--fit_on", "all",
        "--scheduler", "single", "--shortest_sequence_for_user", 3, "--max_sequence_length", 4,
        "--order_of_equal_times", "log", "--validation", "none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(make):
    return make("made", *NAMED)


def test_some_behaviours_make_history_some_are_predicted_and_the_rest_is_counted(made):
    dataset, output = made
    expected = plain_samples(some_log())
    for mapping in ("train", "test"):
        assert samples_of(dataset, mapping, label=1) == expected[mapping]
        rows = pd.read_parquet(dataset / mapping)
        assert len(rows) == 2 * sum(expected[mapping].values())  # a negative is drawn for each
    counts = some_log()["did"].value_counts()
    for name, part in (
        ("view", "history"),
        ("cart", "history and predicted"),
        ("buy", "predicted"),
        ("hide", "left out"),
    ):
        assert f"{name} {counts[name]} ({part})" in output
    kept = pd.concat(rows for _, rows in of_user(some_log()))
    kept = kept[kept["did"] != "hide"]
    assert f"700 interactions read; {len(kept):,} of" in output
    assert "samples have those of their own time that stand before them in their" in output
    table = pd.read_parquet(dataset / "categories/what.parquet").set_index("key")
    counts = kept["what"].value_counts()
    assert table["count"].to_dict() == {key: counts.get(key, 0) for key in table.index}


@pytest.mark.parametrize(
    ("options", "history", "target"),
    [
        (("--target_behaviours", "buy"), ("view", "cart", "buy", "hide"), ("buy",)),
        (("--history_behaviours", "buy"), ("buy",), ("view", "cart", "buy", "hide")),
    ],
    ids=["history", "target"],
)
def test_what_is_not_named_is_all_behaviours(make, options, history, target):
    dataset, _ = make("all", *DID, *options)
    assert samples_of(dataset, "train", 1) == plain_samples(some_log(), history, target)["train"]


def test_labels_say_what_was_taken_of_each_behaviour(make):
    log = some_log()
    dataset, output = make("labelled", *NAMED, "--label_column", "clicked")
    assert ", and no sample's history holds what has its own time" in output
    taken = log.assign(did=np.where(log["clicked"] == 1, log["did"], log["did"] + " not"))
    kept = {who for who, _ in of_user(taken)}
    expected = plain_samples(log[log["who"].isin(kept)], labelled=True)
    for mapping in ("train", "test"):
        assert samples_of(dataset, mapping) == expected[mapping]


def test_a_split_parts_what_is_predicted_and_numbers_of_behaviours_are_read_as_text(make, files):
    numbers = {"view": 1, "cart": 2, "buy": 3, "hide": 4}
    some_log().replace({"did": numbers}).to_parquet(files / "numbers.parquet")
    named = (*DID, "--history_behaviours", "1,2", "--target_behaviours", "2,3")
    split = ("--validation", "newest", "--test_from", 40, "--validation_from", 25)
    dataset, _ = make("timed", *named, *split, log="numbers.parquet")
    found = {mapping: Counter() for mapping in ("train", "validation", "test")}
    for who, rows in of_user(some_log()):
        seen = []
        for row in rows.itertuples():
            if row.did in TARGET and seen:
                part = "train" if row.when < 25 else "validation" if row.when < 40 else "test"
                found[part][who, row.what, 1, tuple(seen[-4:])] += 1
            if row.did in HISTORY:
                seen.append(row.what)
    for mapping, expected in found.items():
        assert samples_of(dataset, mapping, label=1) == expected


def test_numbers_of_interactions_look_at_all_that_is_kept(make, files):
    features = {
        "features": {"spent": {"type": "number", "of": "interaction", "lags": [1]}},
        "time_intervals": "seconds",
        "timestamp_unit": "s",
    }
    (files / "features.yaml").write_text(json.dumps(features))
    dataset, _ = make("numbers", *NAMED, "--features", files / "features.yaml")
    expected = Counter()
    for _, rows in of_user(some_log()):
        rows, seen, before = rows[rows["did"] != "hide"], [], 0.0
        targets = rows[rows["did"].isin(TARGET)].index
        for index, row in rows.iterrows():
            if row["did"] in TARGET and index == targets[-1]:
                since = tuple(row["when"] - when for when in seen[-4:])
                expected[row["spent"], before, since] += 1
            if row["did"] in HISTORY:
                seen.append(row["when"])
            before = row["spent"]
    stored = pd.read_parquet(dataset / "test")
    made = FittedWorkflow.load(dataset).samples(some_log(), "test")
    assert len(made) == len(stored)
    for frame in (stored, made):
        frame = frame[frame["label"] == 1]
        assert expected == Counter(
            (row["spent"], row["spent_lag_1"], tuple(row["when_since_pos"]))
            for _, row in frame.iterrows()
        )


def test_a_fitted_workflow_knows_the_behaviours(refuse, made):
    said = refuse("--fitted", made[0], "--target_behaviours", "buy")
    assert "--target_behaviours: expected cart, buy, as" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DID, "needs `--history_behaviours` (which of them make history), or"),
        (("--target_behaviours", "buy"), "need the column that has them (`--behaviour_column`)"),
        ((*DID, "--target_behaviours", "bought"), "column 'did': expected the behaviours bought"),
        (("--behaviour_column", "what", "--target_behaviours", "1"), "different from each other"),
        (("--behaviour_column", "doing", "--target_behaviours", "1"), "a column 'doing', found"),
        (
            (*DID, "--history_behaviours", "hide", "--shortest_sequence_for_user", 900),
            "No user has 900 interactions that make history (hide) or more",
        ),
        ((*NAMED, "--test_from", 1000), "expected samples in test, found none: the split"),
        ((*NAMED, "--features", "counts.yaml"), "encodings of what with 'did'"),
    ],
)
def test_what_cannot_be_is_refused(refuse, files, options, message):
    (files / "counts.yaml").write_text("encodings: {what: [count]}\n")
    assert message in refuse(*(files / o if str(o).endswith("yaml") else o for o in options))


def test_a_row_without_a_behaviour_is_a_bad_one(refuse, files):
    log = some_log()
    log.loc[6, "did"] = None
    log.to_parquet(files / "bad.parquet")
    said = refuse(*NAMED, log="bad.parquet")
    assert "bad.parquet, line 7: 'did': expected a behaviour, found nothing" in said


def test_users_who_took_nothing_to_predict_leave_nothing(make, files):
    log = some_log()
    log.loc[log["who"] < 10, "did"] = "view"
    log.to_parquet(files / "views.parquet")
    dataset, _ = make("views", *NAMED, log="views.parquet")
    assert samples_of(dataset, "train", 1) == plain_samples(log)["train"]


def test_columns_that_look_like_behaviours_or_labels_are_reported(refuse, files):
    log = some_log().rename(columns={"did": "Event_Type", "clicked": "Clicked"})
    log = log.assign(mood=log["Event_Type"], shade=log["Clicked"])
    log.to_csv(files / "unread.csv", index=False)
    # The notice comes before anything is read, so a run that stops at once will do.
    said = refuse("--negatives", "none", log="unread.csv")
    assert "column 'Event_Type' of buy, cart, hide, view, which is not read: all rows" in said
    assert "column 'Clicked' of 0 and 1, which is not read" in said
    assert "mood" not in said and "shade" not in said
