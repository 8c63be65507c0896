"""Stores are filled from logs and datasets; the commands say what they did and what is wrong."""

from __future__ import annotations

import json
from datetime import date

import numpy as np
import pandas as pd
import pytest
from in_process import answer, run

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.histories.open_store import open_store, shown_store
from merlin_sim.serving.histories.store import LONGEST_KEY, Interaction, as_text, parse_interaction

# A column of a log may have any name, that of what a reader adds too.
COLUMNS = ["--user_column", "user", "--item_column", "row", "--timestamp_column", "time"]


def make_log(rows=600, seed=3):
    draws = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "user": draws.integers(0, 20, rows),
            "row": [f"i{number}" for number in draws.integers(0, 50, rows)],
            "time": draws.integers(0, 200, rows),
            "taken": draws.integers(0, 2, rows),
            "what": draws.choice(["view", "cart", "buy"], rows),
        }
    )


def histories_of(log):
    """Each user's items, by pandas."""
    ordered = log.sort_values("time", kind="stable")
    return {user: list(own) for user, own in ordered.groupby("user")["row"]}


def found_in(store, users):
    opened = open_store(str(store))
    return {user: opened.read(as_text(user), 10**6).items for user in users}


BEHAVIOURS = ["--behaviour_column", "what", "--history_behaviours"]


@pytest.mark.parametrize(
    ("options", "joins"),
    [
        ([], lambda log: log["time"] >= 0),
        (["--label_column", "taken"], lambda log: log["taken"] == 1),
        ([*BEHAVIOURS, "cart,buy"], lambda log: log["what"] != "view"),
        (
            ["--label_column", "taken", *BEHAVIOURS, "buy"],
            lambda log: (log["taken"] == 1) & (log["what"] == "buy"),
        ),
    ],
    ids=["all", "taken", "behaviours", "taken and of a behaviour"],
)
def test_what_makes_history_is_loaded(tmp_path, options, joins):
    log = make_log()
    log.to_parquet(tmp_path / "log.parquet", row_group_size=100)
    log.to_csv(tmp_path / "log.csv", index=False)
    for form in ("parquet", "csv"):
        if form == "csv":  # keys from CSV are text
            log["user"] = log["user"].astype(str)
        store = tmp_path / f"{form} store"
        said = run("histories", "load", store, tmp_path / f"log.{form}", *COLUMNS, *options)
        assert f"{sum(joins(log))} interactions of 20 users" in said
        assert found_in(store, log["user"].unique().tolist()) == histories_of(log[joins(log)])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A dataset of a log with dates, users and labels; and the log."""
    folder = tmp_path_factory.mktemp("dataset")
    log = make_log(rows=3000)
    log["time"] = pd.to_datetime(1_700_000_000_123_456_789 + log["time"] * 1000, unit="ns")
    log.to_parquet(folder / "log.parquet")
    words = ["--output_path", folder / "made", "--label_column", "taken", *COLUMNS]
    words += ["--order_of_equal_times", "log", "--max_sequence_length", 30]
    run("preprocess", "log", folder / "log.parquet", *words)
    return folder / "made", log


@pytest.mark.slow
def test_a_dataset_gives_what_it_keeps_of_its_histories_and_the_next_day_goes_on(dataset, tmp_path):
    made, log = dataset
    said = run("histories", "load", tmp_path / "store", "--dataset_dir", made)
    assert "interactions of 20 users" in said
    taken = log[log["taken"] == 1]
    expected = histories_of(taken)
    found = found_in(tmp_path / "store", expected)
    for user, own in expected.items():  # the newest, and those of the time of the last of these
        assert len(found[user]) >= 30
        assert found[user] == own[-len(found[user]) :]
    newest = taken.groupby("user")["time"].max()[0].value / 1e9
    assert open_store(str(tmp_path / "store")).read("0", 1).times == [newest]
    run("histories", "load", tmp_path / "next", made.parent / "log.parquet", "--fitted", made)
    assert found_in(tmp_path / "next", expected) == expected


@pytest.mark.slow
def test_keys_of_another_type_than_the_dataset_s_are_refused(dataset, tmp_path):
    made, log = dataset
    log.to_csv(tmp_path / "day.csv", index=False)
    ended = answer("histories", "load", tmp_path / "store", tmp_path / "day.csv", "--fitted", made)
    assert ended.returncode == 2 and not (tmp_path / "store").exists()
    assert "day.csv: column 'user': expected whole numbers (int64), as the" in ended.stderr
    assert "found text (string)" in ended.stderr


@pytest.mark.slow
def test_a_changed_file_of_a_dataset_is_refused(dataset, tmp_path):
    made, _ = dataset
    kept = next((made / "history").glob("*.parquet"))
    whole = kept.read_bytes()
    try:
        kept.write_bytes(whole[:-1] + b"?")
        ended = answer("histories", "load", tmp_path / "store", "--dataset_dir", made)
    finally:
        kept.write_bytes(whole)
    assert ended.returncode == 2
    assert kept.name in ended.stderr and "SHA-256 differs" in ended.stderr


@pytest.mark.parametrize(
    ("times", "kept"),
    [
        (["2025-01-01", "2025-01-01 00:00:01.5"], [1735689600, 1735689601.5]),
        (pd.to_datetime(["2025-01-01", "2025-01-02"]), [1735689600, 1735776000]),
        ([date(1970, 1, 1), date(2025, 1, 1)], [0, 1735689600]),
        ([1735689600000, 1735689600001], [1735689600000, 1735689600001]),
    ],
    ids=["text", "date and time", "date", "numbers"],
)
def test_dates_are_seconds_as_of_what_is_appended_and_numbers_stay(tmp_path, times, kept):
    log = pd.DataFrame({"user": ["A", "A"], "row": ["i1", "i2"], "time": times})
    log.to_parquet(tmp_path / "log.parquet")
    run("histories", "load", tmp_path / "store", tmp_path / "log.parquet", *COLUMNS)
    store = open_store(str(tmp_path / "store"))
    assert as_text(store.read('"A"', 9).times) == as_text(kept)
    later = {"user": "A", "item": "i3", "time": kept[-1] + 1}
    store.append([parse_interaction(later)])
    assert store.read('"A"', 9).items == ["i1", "i2", "i3"]


def test_bad_rows_stop_or_are_left_out_and_a_store_is_as_it_was(tmp_path):
    log = make_log(rows=40).astype(object)
    log.loc[7, "time"] = "yesterday"
    log.to_csv(tmp_path / "log.csv", index=False)
    words = ["histories", "load", tmp_path / "store", tmp_path / "log.csv", *COLUMNS]
    ended = answer(*words)
    assert ended.returncode == 2 and "log.csv, line 9: 'time'" in ended.stderr
    assert open_store(str(tmp_path / "store")).users() == 0
    assert "1 bad rows left out" in run(*words, "--on_bad_rows", "skip")
    ended = answer(*words, "--on_bad_rows", "skip")
    assert ended.returncode == 2 and "expected an empty store, or `--overwrite`" in ended.stderr
    assert "39 interactions" in run(*words, "--on_bad_rows", "skip", "--overwrite")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["load", "S"], "Expected FILES of a log, or --dataset_dir: one"),
        (["load", "S", "none.csv", *COLUMNS], "none.csv: no such file"),
        (["load", "S", "none.csv", "--user_column", "u"], "'--item_column', or '--fitted'"),
        (["load", "S", "a", *COLUMNS, "--behaviour_column", "b"], "need each other"),
        (["load", "S", "--dataset_dir", "none"], "none/workflow.json"),
        (["load", "S", "--dataset_dir", "none", "--user_column", "u"], "leave the others out"),
        (["load", "S", "a.csv", "--fitted", "b", "--user_column", "u"], "leave the others out"),
        (["append", "S"], "S: no such file"),
        (["show", "S", "--user", "1"], "S: no such file"),
    ],
)
def test_what_cannot_be_is_said(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    ended = answer("histories", *words)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert not (tmp_path / "S").exists()


def test_lines_are_appended_shown_and_forgotten(tmp_path):
    store, lines = tmp_path / "store", tmp_path / "lines.jsonl"
    open_store(str(store), create=True)
    given = [
        {"user": 7, "item": "B1", "time": 3},
        {"user": 7, "item": {"item_id": "B0", "cat_id": 4}, "time": 2},
    ]
    lines.write_text("\n".join(map(json.dumps, given)))
    assert run("histories", "append", store, "--input", lines) == "2 interactions\n"
    shown = run("histories", "show", store, "--user", "7")
    assert shown.splitlines()[1:] == [
        '{"item_id": "B0", "cat_id": 4}     2',
        '"B1"' + " " * 31 + "3",
    ]
    as_json = json.loads(run("histories", "show", store, "--user", "7", "--json", "--newest", "1"))
    assert as_json == {"history": ["B1"], "times": [3]}
    lines.write_text('{"user": 7, "item": "B2"}\n{"user": 7}\n')
    ended = answer("histories", "append", store, "--input", lines)
    assert ended.returncode == 2
    assert "line 2: expected the key 'item'" in ended.stderr
    assert "1 interactions before" in ended.stderr
    opened = open_store(str(store))
    assert opened.read("7", 9).items[-1] == "B2"
    opened.append([Interaction('"A"', "1")])
    assert "1 interactions removed" in run("histories", "delete", store, "--user", "A")
    assert "3 interactions removed" in run("histories", "delete", store, "--user", "7")
    for verb, user in (("show", "7"), ("delete", "A")):
        nobody = answer("histories", verb, store, "--user", user)
        assert nobody.returncode == 1 and f"no interactions of user {user}" in nobody.stderr


def test_an_address_with_a_password_stands_in_a_file_or_the_environment(tmp_path, monkeypatch):
    open_store(str(tmp_path / "s"), create=True).append([Interaction('"A"', "5")])
    (tmp_path / "address").write_text(f"{tmp_path / 's'}\n")
    monkeypatch.setenv("STORE_OF_HISTORIES", str(tmp_path / "s"))
    for given in (f"@{tmp_path / 'address'}", "env:STORE_OF_HISTORIES"):
        assert '"history": [5]' in run("histories", "show", given, "--user", "A", "--json")
    for address in ("redis://:x1y2@here", "redis://u:x1y2@here/0", "redis://here?password=x1y2"):
        refused = answer("histories", "show", address, "--user", "A")
        assert refused.returncode == 2 and "x1y2" not in refused.stderr
        assert "env:NAME" in refused.stderr
        assert "x1y2" not in shown_store(address) and "here" in shown_store(address)
    monkeypatch.delenv("STORE_OF_HISTORIES")
    assert answer("histories", "show", "env:STORE_OF_HISTORIES", "--user", "A").returncode == 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([], "expected an object"),
        ({"item": 1}, "expected the key 'user'"),
        ({"user": 1, "item": 1, "tme": 2}, "received 'tme'"),
        ({"user": 1.5, "item": 1}, "user: expected a text or a whole number"),
        ({"user": True, "item": 1}, "user: expected a text or a whole number"),
        ({"user": None, "item": 1}, "user: expected a text or a whole number"),
        ({"user": 1, "item": {}}, "item: expected at least one key"),
        ({"user": 1, "item": {"a": [1]}}, "item.a: expected a text or a whole number"),
        ({"user": 1, "item": "x" * LONGEST_KEY}, "at most 4,096 characters"),
        ({"user": "\ud800", "item": 1}, "user: expected text, received a lone surrogate"),
        ({"user": 1, "item": 1, "time": "noon"}, "time: expected a number"),
        ({"user": 1, "item": 1, "time": float("nan")}, "time: expected a number"),
        ({"user": 1, "item": 1, "time": 1 << 60}, "count in microseconds"),
    ],
)
def test_an_interaction_that_cannot_be_kept_is_refused(fields, says):
    with pytest.raises(RequestError, match=says):
        parse_interaction(fields)
