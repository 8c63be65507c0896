"""A log of several behaviours: which make history, which are predicted, and what the rest do."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

OPTIONS = (
    "--fit_on", "all",
    "--scheduler", "single", "--shortest_sequence_for_user", 3, "--max_sequence_length", 4,
    "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip
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
        for place, (before, sample) in enumerate(found):
            if place == len(found) - 1:
                samples["test"][sample] += 1
            elif before:
                samples["train"][sample] += 1
    return samples


def stored(dataset, mapping, label=1) -> Counter:
    frame = pd.read_parquet(dataset / mapping)
    frame = frame if label is None else frame[frame["label"] == label]
    who, what = (
        dict(pd.read_parquet(dataset / f"categories/{name}.parquet")[["id", "key"]].values)
        for name in ("who", "what")
    )
    return Counter(
        (who.get(r.who), what[r.what_trgt], r.label, tuple(what[item] for item in r.what_pos))
        for r in frame.itertuples()
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("behaviours")
    some_log().to_parquet(directory / "log.parquet", row_group_size=150)
    return directory


@pytest.fixture(scope="module")
def log_options():
    return OPTIONS


@pytest.fixture(scope="module")
def made(run, files):
    result = run("made", *NAMED)
    assert result.exit_code == 0, result.output
    return files / "made", result.output


def test_some_behaviours_make_history_and_some_are_predicted(made):
    expected = plain_samples(some_log())
    for mapping in ("train", "test"):
        assert stored(made[0], mapping) == expected[mapping]
        rows = pd.read_parquet(made[0] / mapping)
        assert len(rows) == 2 * sum(expected[mapping].values())  # a twin is drawn for each


def test_the_rest_is_left_out_and_counted(made):
    counts = some_log()["did"].value_counts()
    for name, part in (
        ("view", "history"),
        ("cart", "history and predicted"),
        ("buy", "predicted"),
        ("hide", "left out"),
    ):
        assert f"{name} {counts[name]} ({part})" in made[1]
    kept = pd.concat(rows for _, rows in of_user(some_log()))
    kept = kept[kept["did"] != "hide"]
    assert f"700 interactions read; {len(kept):,} of" in made[1]
    assert "samples have those of their own time that stand before them in their" in made[1]
    table = pd.read_parquet(made[0] / "categories/what.parquet").set_index("key")
    counts = kept["what"].value_counts()
    assert table["count"].to_dict() == {key: counts.get(key, 0) for key in table.index}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "history", "target"),
    [
        (("--target_behaviours", "buy"), ("view", "cart", "buy", "hide"), ("buy",)),
        (("--history_behaviours", "buy"), ("buy",), ("view", "cart", "buy", "hide")),
    ],
)
def test_what_is_not_named_is_all_behaviours(run, files, options, history, target):
    assert run("all", *DID, *options, "--overwrite").exit_code == 0
    assert stored(files / "all", "train") == plain_samples(some_log(), history, target)["train"]


@pytest.mark.slow
def test_labels_say_what_was_taken_of_each_behaviour(run, files):
    log = some_log()
    result = run("labelled", *NAMED, "--label_column", "clicked")
    assert result.exit_code == 0, result.output
    assert ", and no sample's history holds what has its own time" in result.output
    taken = log.assign(did=np.where(log["clicked"] == 1, log["did"], log["did"] + " not"))
    kept = {who for who, _ in of_user(taken)}
    expected = plain_samples(log[log["who"].isin(kept)], labelled=True)
    for mapping in ("train", "test"):
        assert stored(files / "labelled", mapping, None) == expected[mapping]


@pytest.mark.slow
def test_numbers_of_behaviours_are_read_as_text_from_csv_and_parquet(run, files, made):
    numbers = {"view": 1, "cart": 2, "buy": 3, "hide": 4}
    log = some_log().replace({"did": numbers})
    log.to_parquet(files / "numbers.parquet")
    log.to_csv(files / "numbers.csv", index=False)
    named = (*DID, "--history_behaviours", "1,2", "--target_behaviours", "2,3")
    for kind in ("parquet", "csv"):
        assert run(f"numbers {kind}", *named, log=f"numbers.{kind}").exit_code == 0
        found = Counter()
        for (who, what, label, seen), count in stored(files / f"numbers {kind}", "test").items():
            found[int(who), int(what), label, tuple(map(int, seen))] += count
        assert found == stored(made[0], "test")


@pytest.mark.slow
def test_a_split_parts_what_is_predicted(run, files):
    assert run("timed", *NAMED, "--test_from", 40, "--validation_from", 25).exit_code == 0
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
        assert stored(files / "timed", mapping) == expected


@pytest.mark.slow
def test_numbers_of_interactions_look_at_all_that_is_kept(run, files):
    (files / "features.yaml").write_text(
        json.dumps(
            {
                "features": {"spent": {"type": "number", "of": "interaction", "lags": [1]}},
                "time_intervals": "seconds",
                "timestamp_unit": "s",
            }
        )
    )
    result = run("numbers", *NAMED, "--features", files / "features.yaml")
    assert result.exit_code == 0, result.output
    expected = Counter()
    for _, rows in of_user(some_log()):
        rows, seen, before = rows[rows["did"] != "hide"], [], 0.0
        targets = rows[rows["did"].isin(TARGET)].index
        for place, row in rows.iterrows():
            if row["did"] in TARGET and place == targets[-1]:
                since = tuple(row["when"] - when for when in seen[-4:])
                expected[row["spent"], before, since] += 1
            if row["did"] in HISTORY:
                seen.append(row["when"])
            before = row["spent"]
    frame = pd.read_parquet(files / "numbers/test").query("label == 1")
    lagged = next(name for name in frame if name.startswith("spent_") or name.endswith("ago"))
    found = Counter(
        (row["spent"], row[lagged], tuple(row["when_since_pos"])) for _, row in frame.iterrows()
    )
    assert found == expected
    fitted = FittedWorkflow.load(files / "numbers")
    made = fitted.samples(some_log(), "test")
    assert len(made) == len(pd.read_parquet(files / "numbers/test"))
    made = made[made["label"] == 1]
    assert expected == Counter(
        (row["spent"], row[lagged], tuple(row["when_since_pos"])) for _, row in made.iterrows()
    )


@pytest.mark.slow
def test_a_fitted_workflow_knows_the_behaviours(run, files, made):
    log = some_log(seed=1).query("did != 'hide'")
    log.to_parquet(files / "next.parquet")
    result = run("next", "--fitted", made[0], log="next.parquet")
    assert result.exit_code == 0, result.output
    assert stored(files / "next", "train") == plain_samples(log)["train"]
    fitted = FittedWorkflow.load(files / "next")
    frame = fitted.samples(pd.concat(rows for _, rows in of_user(log)), "train")
    assert len(frame) == len(pd.read_parquet(files / "next/train"))
    result = run("next", "--fitted", made[0], "--target_behaviours", "buy", log="next.parquet")
    assert "--target_behaviours: expected cart, buy, as" in str(result.exception)


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
        (("--behaviour_column", "who", "--target_behaviours", "0"), "different from each other"),
    ],
)
def test_what_cannot_be_is_refused(run, files, options, message):
    result = run("refused", *options)
    assert message in str(result.exception) + result.output
    assert result.exit_code != 0
    assert not (files / "refused").exists()


@pytest.mark.slow
def test_users_who_took_nothing_to_predict_leave_nothing(run, files):
    log = some_log()
    log.loc[log["who"] < 10, "did"] = "view"
    log.to_parquet(files / "views.parquet")
    assert run("views", *NAMED, log="views.parquet").exit_code == 0
    assert stored(files / "views", "train") == plain_samples(log)["train"]
    log.assign(did=np.where(log["who"] < 20, "view", "")).query("did == 'view'").to_parquet(
        files / "only.parquet"
    )
    result = run("only", *DID, "--history_behaviours", "view", log="only.parquet")
    assert result.exit_code == 0, result.output


def test_encodings_are_refused(run, files):
    (files / "counts.yaml").write_text("encodings: {what: [count]}\n")
    result = run("refused", *NAMED, "--features", files / "counts.yaml")
    assert "encodings of what with 'did'" in str(result.exception)


def test_a_row_without_a_behaviour_is_a_bad_one(run, files):
    log = some_log()
    log.loc[6, "did"] = None
    log.to_parquet(files / "bad.parquet")
    result = run("refused", *NAMED, log="bad.parquet")
    assert "bad.parquet, line 7: 'did': expected a behaviour, found nothing" in str(
        result.exception
    )


@pytest.mark.parametrize(
    ("name", "reported"), [("Event_Type", "buy, cart, hide, view"), ("mood", None)]
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_looks_like_behaviours_is_reported(run, files, name, reported, kind):
    log = some_log().rename(columns={"did": name})
    if kind == "csv":
        log.to_csv(files / "unread.csv", index=False)
    else:
        log.to_parquet(files / "unread.parquet")
    # The notice comes before anything is read, so a run that stops at once will do.
    result = run("unread", "--negatives", "none", log=f"unread.{kind}")
    expected = f"column {name!r} of {reported}, which is not read: all rows count alike"
    assert (expected in result.output) == (reported is not None)
    assert ("count alike" in result.output) == (reported is not None)
