"""The next day: a log goes on from the histories of an earlier dataset."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows_without_order import rows_of

from merlin_sim.foundation.digest import DIGEST, sha256, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.preprocess import preprocess_log
from merlin_sim.workflows.preprocess.earlier_histories import COUNTED
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

OPTIONS = (
    "--scheduler", "single", "--shortest_sequence_for_user", 5, "--max_sequence_length", 6,
    "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip
HALF = 50


def some_log(rows=900, users=60, seed=0) -> pd.DataFrame:
    """Of these users some are active in one half alone, some are short in both."""
    random = np.random.default_rng(seed)
    log = pd.DataFrame(
        {
            "who": np.minimum(random.geometric(0.06, rows), users),
            "what": random.integers(0, 25, rows),
            "when": random.integers(0, 2 * HALF, rows),
            "clicked": random.integers(0, 2, rows),
            "did": random.choice(["view", "cart", "buy"], rows),
            "spent": random.integers(1, 100, rows) / 4,
        }
    )
    return log[(log["who"] % 7 != 0) | (log["when"] < HALF)].reset_index(drop=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("days")
    log = some_log()
    log.to_parquet(directory / "log.parquet", row_group_size=130)
    log[log["when"] < HALF].to_parquet(directory / "old.parquet")
    log[log["when"] >= HALF].to_parquet(directory / "new.parquet")
    return directory


@pytest.fixture(scope="module")
def log_options():
    return OPTIONS


GIVEN = {
    "plain": lambda files: (),
    "labels": lambda files: ("--label_column", "clicked", "--negatives", "uniform"),
    "behaviours": lambda files: (
        *("--behaviour_column", "did", "--history_behaviours", "view,cart"),
        *("--target_behaviours", "cart,buy"),
    ),
    "numbers": lambda files: ("--label_column", "clicked", "--features", files / "features.yaml"),
}
"""Kind of log -> its options."""


@pytest.fixture(scope="module", params=list(GIVEN))
def days(request, run, files):
    """A dataset of the old day, one that goes on from it, and one of both days together."""
    kind = request.param
    (files / "features.yaml").write_text(
        json.dumps(
            {
                "features": {"spent": {"type": "number", "of": "interaction", "lags": [1, 2]}},
                "time_intervals": "seconds",
                "timestamp_unit": "s",
            }
        )
    )
    given = GIVEN[kind](files)
    old, new, both = (files / f"{name} {kind}" for name in ("old", "new", "both"))
    assert run(old.name, *given, log="old.parquet").exit_code == 0
    # What of the whole is the new day's: all that tests from its beginning on.
    split = ("--fitted", old, "--test_from", HALF)
    result = run(both.name, *split, log="log.parquet")
    assert result.exit_code == 0, result.output
    going_on = ("--fitted", old, "--history", old, "--test_from", HALF + 25)
    result = run(new.name, *going_on, log="new.parquet")
    assert result.exit_code == 0, result.output
    return old, new, both, result.output, kind


@pytest.mark.slow
def test_the_new_samples_are_those_of_both_days_together(days):
    """Row for row: histories, numbers, and what is drawn."""
    _, new, both, *_ = days
    wanted = rows_of(both, "test")
    assert sum(wanted.values()) > 200
    assert rows_of(new, "train") + rows_of(new, "test") == wanted


@pytest.mark.slow
@pytest.mark.parametrize("days", ["labels", "numbers"], indirect=True)
def test_a_new_day_that_begins_at_the_time_of_the_old_ones_last(run, files, days):
    """What was shown at one time does not count, so that as much before it has to be kept."""
    *_, kind = days
    more = ("--shortest_sequence_for_training", 8) if kind == "numbers" else ()
    log = some_log()
    log["when"] //= 10  # many rows of one time
    is_old = (log["when"] < 6) | ((log["when"] == 6) & (log.index % 2 == 0))
    log[is_old].to_parquet(files / "until six.parquet")
    log[~is_old].to_parquet(files / "from six.parquet")
    options = ("--overwrite", *GIVEN[kind](files), *more)
    assert run("until six", *options, log="until six.parquet").exit_code == 0
    split = ("--test_path", files / "from six.parquet", "--fitted", files / "until six")
    result = run("of both", "--overwrite", *split, log="until six.parquet")
    assert result.exit_code == 0, result.output
    going_on = ("--fitted", files / "until six", "--history", files / "until six", "--overwrite")
    # A split that has nothing before each user's last interaction leaves it the least that counts.
    result = run("went on", *going_on, "--test_from", 8, log="from six.parquet")
    assert result.exit_code == 0, result.output
    wanted = rows_of(files / "of both", "test")
    assert sum(wanted.values()) > 100
    assert rows_of(files / "went on", "train") + rows_of(files / "went on", "test") == wanted


@pytest.mark.slow
def test_the_rule_of_short_histories_is_of_both_days(days):
    old, _, _, output, kind = days
    log = some_log()
    joins = {
        "plain": np.ones(len(log), bool),
        "labels": log["clicked"] == 1,
        "behaviours": log["did"] != "buy",
        "numbers": log["clicked"] == 1,
    }[kind]
    counts = log[joins].groupby("who").size()
    of_new = log[log["when"] >= HALF]["who"].unique()
    kept = counts.reindex(of_new, fill_value=0) >= 5
    assert 0 < (~kept).sum() < len(kept)
    assert f"of {kept.sum()} users kept" in output
    assert f"of {(~kept).sum()} users too short" in output
    short_then = counts - log[joins & (log["when"] >= HALF)].groupby("who").size()
    assert ((short_then < 5) & (short_then > 0) & kept.reindex(counts.index).fillna(False)).any()


@pytest.mark.slow
@pytest.mark.parametrize("days", ["plain", "behaviours"], indirect=True)
def test_a_third_day_goes_on_from_the_second(run, files, days):
    """The second day keeps what the first one kept, of users whom it did not see, too."""
    old, _, both, _, kind = days
    log = some_log()
    for name, (first, last) in {"second": (HALF, 75), "third": (75, 100)}.items():
        log[log["when"].between(first, last - 1)].to_parquet(files / f"{name}.parquet")
    last = ("--test_users", 0, "--overwrite")
    second = ("--fitted", old, "--history", old, *last)
    assert run("second", *second, log="second.parquet").exit_code == 0
    third = ("--fitted", old, "--history", files / "second", "--test_from", 80, "--overwrite")
    result = run("third", *third, log="third.parquet")
    assert result.exit_code == 0, result.output
    assert run("late", "--fitted", old, "--test_from", 75, "--overwrite").exit_code == 0
    found = rows_of(files / "third", "train") + rows_of(files / "third", "test")
    assert found == rows_of(files / "late", "test")


@pytest.mark.slow
def test_rows_that_come_late_take_their_place_by_time(run, files):
    """What was known of the old day alone is no sample, and a late row sees what was before it."""
    log = some_log()
    late = log.index % 3 == 0
    log[~late].to_parquet(files / "on time.parquet")
    log[late].to_parquet(files / "late.parquet")
    assert run("on time", log="on time.parquet").exit_code == 0
    options = ("--fitted", files / "on time", "--history", files / "on time")
    result = run("came late", *options, "--test_from", 60, "--max_sequence_length", 6,
                 log="late.parquet")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "0 interactions of the log are no later" not in result.output
    # Of a history longer than what is kept nothing older can be seen.
    known = pd.read_parquet(files / "on time/categories/what.parquet").set_index("id")["key"]
    who = pd.read_parquet(files / "on time/categories/who.parquet").set_index("id")["key"]
    counts = log.groupby("who").size()
    checked = 0
    for row in pd.read_parquet(files / "came late/test").query("label == 1").itertuples():
        user = log[log["who"] == who.get(row.who)]
        if (~late[user.index]).sum() > 6 or counts.get(who.get(row.who), 0) < 5:
            continue
        ordered = pd.concat([user[~late[user.index]], user[late[user.index]]])
        ordered = ordered.sort_values("when", kind="stable")
        prefixes = [
            (what, ordered["what"].tolist()[max(0, place - 6) : place])
            for place, what in enumerate(ordered["what"])
        ]
        assert (known[row.what_trgt], [known[item] for item in row.what_pos]) in prefixes
        checked += 1
    assert checked > 5


@pytest.mark.slow
def test_counts_of_whole_histories_go_on(run, files):
    """Longer ones than a model reads, and by way of a day that brings nothing of some users."""
    (files / "counts.yaml").write_text("lifetime_counts: [what]")
    log = some_log()
    log["what"] %= 4
    log.to_parquet(files / "whole.parquet")
    for name, (first, last) in {"1": (0, HALF), "2": (HALF, 75), "3": (75, 100)}.items():
        log[log["when"].between(first, last - 1)].to_parquet(files / f"{name}.parquet")
    assert run("day 1", "--features", files / "counts.yaml", log="1.parquet").exit_code == 0
    for name, earlier, split in (("2", "day 1", ("--test_users", 0)), ("3", "day 2", ())):
        options = ("--fitted", files / "day 1", "--history", files / earlier, *split)
        result = run(f"day {name}", *options, log=f"{name}.parquet")
        assert result.exit_code == 0, result.output
    options = ("--fitted", files / "day 1", "--test_from", 75)
    assert run("whole", *options, log="whole.parquet").exit_code == 0
    whole, third = files / "whole", files / "day 3"
    assert np.expm1(pd.read_parquet(whole / "test").filter(like="lifetime").to_numpy()).max() > 6
    assert rows_of(third, "train") + rows_of(third, "test") == rows_of(whole, "test")
    document = json.loads((files / "day 2/workflow.json").read_text())
    document.pop(DIGEST)
    document["history"]["longest"] = 6
    (files / "day 2/workflow.json").write_text(with_own_digest(document))
    options = ("--fitted", files / "day 1", "--history", files / "day 2")
    message = str(run("refused", *options, log="3.parquet").exception)
    assert "the newest 6 interactions of each history, expected all, which `lifetime" in message


@pytest.mark.slow
def test_without_histories_a_new_day_starts_cold_and_says_so(run, files, days):
    old, *_, kind = days
    result = run("cold", "--fitted", old, "--overwrite", log="new.parquet")
    assert result.exit_code == 0, result.output
    log = pd.read_parquet(files / "new.parquet")
    if kind == "plain":
        counts = log.groupby("who").size()
        reported = f"{(counts >= 5).sum()} of {len(counts)} users have 5 interactions or more in it"
        assert f"histories start in this log: {reported}" in result.output


@pytest.mark.slow
def test_what_has_no_id_is_counted(run, files, monkeypatch):
    log = some_log()
    log[log["when"] < HALF].to_parquet(files / "known.parquet")
    assert run("known", log="known.parquet").exit_code == 0
    new = log[log["when"] >= HALF].copy()
    new.loc[new.index[::4], "what"] += 1000
    new["who"] += np.where(new["who"] == 3, 500, 0)
    new.to_parquet(files / "strange.parquet")
    options = ("--fitted", files / "known", "--history", files / "known")
    monkeypatch.setattr(preprocess_log, "number_of_buckets", lambda size: 5)
    result = run("strange", *options, log="strange.parquet")
    assert result.exit_code == 0, result.output
    together = pd.concat([log[log["when"] < HALF], new]).groupby("who").size()
    kept = new[new["who"].map(together) >= 5]
    unseen = kept[kept["what"] >= 1000]
    assert (
        f"left out: {len(unseen)} interactions with {unseen['what'].nunique()} items"
        in result.output
    )
    ids = set(pd.read_parquet(files / "known/categories/who.parquet")["key"])
    unknown = set(kept["who"]) - ids
    assert 503 in unknown
    assert f"{len(unknown)} of the users kept have none" in result.output


@pytest.mark.slow
def test_dates_of_another_unit_go_on(run, files):
    log = some_log()
    log["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(log["when"], "h")
    half = pd.Timestamp("2024-01-01") + pd.to_timedelta(HALF, "h")
    old, new = log[log["when"] < half], log[log["when"] >= half]
    old.to_parquet(files / "dated old.parquet")  # counts microseconds
    table = new.astype({"when": "datetime64[ns]"})
    table.to_parquet(files / "dated new.parquet", version="2.6", coerce_timestamps="ms")
    assert run("dated old", log="dated old.parquet").exit_code == 0
    options = ("--fitted", files / "dated old", "--history", files / "dated old")
    result = run("dated new", *options, log="dated new.parquet")
    assert result.exit_code == 0, result.output
    assert "; 0 interactions of the log are no later" in result.output
    assert run("plain old", log="old.parquet").exit_code == 0
    options = ("--fitted", files / "plain old", "--history", files / "plain old")
    assert run("plain new", *options, log="new.parquet").exit_code == 0
    for mapping in ("train", "test"):
        assert rows_of(files / "dated new", mapping) == rows_of(files / "plain new", mapping)
    message = run("refused", *options, log="dated new.parquet").exception
    assert "its times are of the kind 'int', those of the log 'date in ms'" in str(message)


@pytest.fixture(scope="module")
def old(run, files):
    assert run("old", log="old.parquet").exit_code == 0
    return files / "old"


def test_a_dataset_keeps_no_more_than_its_rules_ask_for(old, files):
    kept = pd.read_parquet(old / "history")
    log = some_log().query(f"when < {HALF}")
    counts = log.groupby("who").size()
    assert kept.groupby("who").size().to_dict() == counts.clip(upper=6).to_dict()
    newest = log.sort_values("when", kind="stable").groupby("who")["what"].agg(lambda g: [*g][-6:])
    ordered = kept.sort_values("when", kind="stable").groupby("who")["what"].agg(list)
    assert ordered.to_dict() == newest.to_dict()
    assert kept.groupby("who")["rows of histories so far"].first().to_dict() == counts.to_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--history", "OLD"), "--history needs --fitted"),
        (("--fitted", "OLD", "--history", "OLD", "--max_sequence_length", 9), "the newest 6 inter"),
        (("--fitted", "OLD", "--history", "no"), "no/workflow.json"),
        (
            ("--fitted", "OLD", "--history", "OLD", "--shortest_sequence_for_user", 999),
            "No user has 999 interactions or more in the histories of",
        ),
    ],
)
def test_what_cannot_go_on_is_refused(run, files, old, options, message):
    options = [old if option == "OLD" else option for option in options]
    result = run("refused", *options, log="new.parquet")
    assert message in str(result.exception) + result.output
    assert result.exit_code != 0
    assert not (files / "refused").exists()


def test_changed_missing_and_unknown_histories_are_refused(run, files, old, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    options = ("--fitted", old, "--history", copy)
    path = next((copy / "history").iterdir())
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    message = str(run("refused", *options, log="new.parquet").exception)
    assert f"{path}: not the file that" in message
    path.unlink()
    message = str(run("refused", *options, log="new.parquet").exception)
    assert f"{path}: missing; {copy}/workflow.json names it" in message
    document = json.loads((copy / "workflow.json").read_text())
    document.pop(DIGEST)
    (copy / "workflow.json").write_text(with_own_digest({**document, "history": None}))
    assert "keeps no histories" in str(run("refused", *options, log="new.parquet").exception)


def _in_the_middle(cell):
    """The change of a column that puts ``cell`` into the middle of its rows."""

    def change(column):
        cells = column.to_pylist()
        cells[len(cells) // 2] = cell
        return pa.array(cells, column.type)

    return change


def _as_text(column):
    return column.cast("string")


FORGED = [
    *((name, _as_text, "whole numbers, found text") for name in COUNTED),
    *((name, _in_the_middle(-1), "0 to [0-9,]+, found -1") for name in COUNTED),
    (COUNTED[1], _in_the_middle(2**62), f"0 to [0-9,]+, found {2**62:,}"),
    *(
        (name, _in_the_middle(None), "a value in each row, found null")
        for name in ("who", "what", "when", COUNTED[0])
    ),
]


@pytest.mark.parametrize(("name", "change", "expected"), FORGED)
def test_a_forged_history_is_refused(old, tmp_path, name, change, expected):
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    path = next((copy / "history").iterdir())
    table = pq.read_table(path)
    place = table.column_names.index(name)
    column = change(table[name].combine_chunks())
    pq.write_table(table.set_column(place, name, column), path)
    document = json.loads((copy / "workflow.json").read_text())
    document.pop(DIGEST)
    document["history"]["files"][path.name] = sha256(path)
    (copy / "workflow.json").write_text(with_own_digest(document))
    kept = FittedWorkflow.load(copy).kept
    wanted = re.escape(f"{path}, column {name!r}: expected ") + expected
    with pytest.raises(MerlinSimError, match=wanted):
        kept.read(path, [name])


def test_keys_of_another_type_are_refused(run, files, old):
    pd.read_parquet(files / "new.parquet").to_csv(files / "new.csv", index=False)
    message = str(run("refused", "--fitted", old, log="new.csv").exception)
    expected = "column 'what': expected whole numbers (int64), as the workflow was fitted on, found"
    assert expected in message
    message = str(run("refused", "--fitted", old, "--history", old, log="new.csv").exception)
    assert "column 'who' of the log: expected whole numbers (int64) as in" in message
