"""The next day: a log goes on from the histories of an earlier dataset."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from stored_samples import keys_of, rows_of

from merlin_sim.foundation.digest import DIGEST, with_own_digest
from merlin_sim.workflows.preprocess import preprocess_log

pytestmark = pytest.mark.slow

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
    return (
        "--scheduler", "single", "--shortest_sequence_for_user", 5, "--max_sequence_length", 6,
        "--order_of_equal_times", "log", "--validation", "none",
    )  # fmt: skip


FEATURES = {
    "features": {"spent": {"type": "number", "of": "interaction", "lags": [1, 2]}},
    "time_intervals": "seconds",
    "timestamp_unit": "s",
}


def options_of(kind, files):
    if kind == "behaviours":
        return (
            *("--behaviour_column", "did", "--history_behaviours", "view,cart"),
            *("--target_behaviours", "cart,buy"),
        )
    (files / "features.yaml").write_text(json.dumps(FEATURES))
    labels = ("--label_column", "clicked", "--negatives", "uniform")
    return (*labels, "--features", files / "features.yaml")


def going_on(fitted, earlier=None):
    return ("--fitted", fitted, "--history", earlier or fitted)


@pytest.fixture(scope="module", params=["behaviours", "labels and numbers"])
def days(request, make, files):
    """A dataset of the old day, one that goes on from it, and one of both days together."""
    kind = request.param
    old, _ = make(f"old {kind}", *options_of(kind, files), log="old.parquet")
    # What of the whole is the new day's: all that tests from its beginning on.
    both, _ = make(f"both {kind}", "--fitted", old, "--test_from", HALF)
    new, output = make(f"new {kind}", *going_on(old), "--test_from", HALF + 25, log="new.parquet")
    return old, new, both, output, kind


def test_the_new_samples_are_those_of_both_days_together(days):
    """Row for row: histories, numbers, and what is drawn; so is the rule of short histories."""
    _, new, both, output, kind = days
    wanted = rows_of(both, "test")
    assert sum(wanted.values()) > 200
    assert rows_of(new, "train") + rows_of(new, "test") == wanted
    log = some_log()
    joins = log["did"] != "buy" if kind == "behaviours" else log["clicked"] == 1
    counts = log[joins].groupby("who").size()
    of_new = log[log["when"] >= HALF]["who"].unique()
    kept = counts.reindex(of_new, fill_value=0) >= 5
    assert 0 < (~kept).sum() < len(kept)
    assert f"of {kept.sum()} users kept" in output
    assert f"of {(~kept).sum()} users too short" in output
    short_then = counts - log[joins & (log["when"] >= HALF)].groupby("who").size()
    assert ((short_then < 5) & (short_then > 0) & kept.reindex(counts.index).fillna(False)).any()


def test_a_new_day_that_begins_at_the_time_of_the_old_ones_last(make, files):
    """What was shown at one time does not count, so that as much before it has to be kept."""
    log = some_log()
    log["when"] //= 10  # many rows of one time
    is_old = (log["when"] < 6) | ((log["when"] == 6) & (log.index % 2 == 0))
    log[is_old].to_parquet(files / "until six.parquet")
    log[~is_old].to_parquet(files / "from six.parquet")
    options = (*options_of("numbers", files), "--shortest_sequence_for_training", 8)
    old, _ = make("until six", *options, log="until six.parquet")
    split = ("--test_path", files / "from six.parquet", "--fitted", old)
    both, _ = make("of both", *split, log="until six.parquet")
    # A split that has nothing before each user's last interaction leaves it the least that counts.
    new, _ = make("went on", *going_on(old), "--test_from", 8, log="from six.parquet")
    wanted = rows_of(both, "test")
    assert sum(wanted.values()) > 100
    assert rows_of(new, "train") + rows_of(new, "test") == wanted


@pytest.fixture(scope="module")
def old(make):
    return make("old", log="old.parquet")[0]


def test_rows_that_come_late_take_their_place_by_time(make, files):
    """What was known of the old day alone is no sample, and a late row sees what was before it."""
    log = some_log()
    late = log.index % 3 == 0
    log[~late].to_parquet(files / "on time.parquet")
    log[late].to_parquet(files / "late.parquet")
    on_time, _ = make("on time", log="on time.parquet")
    options = (*going_on(on_time), "--test_from", 60, "--max_sequence_length", 6)
    dataset, output = make("came late", *options, log="late.parquet")
    assert "0 interactions of the log are no later" not in output
    # Of a history longer than what is kept nothing older can be seen.
    known, who = keys_of(on_time, "what"), keys_of(on_time, "who")
    counts = log.groupby("who").size()
    checked = 0
    for row in pd.read_parquet(dataset / "test").query("label == 1").itertuples():
        user = log[log["who"] == who[row.who]]
        if (~late[user.index]).sum() > 6 or counts.get(who[row.who], 0) < 5:
            continue
        ordered = pd.concat([user[~late[user.index]], user[late[user.index]]])
        ordered = ordered.sort_values("when", kind="stable")
        prefixes = [
            (what, ordered["what"].tolist()[max(0, index - 6) : index])
            for index, what in enumerate(ordered["what"])
        ]
        assert (known[row.what_trgt], [known[item] for item in row.what_pos]) in prefixes
        checked += 1
    assert checked > 5


def test_counts_of_whole_histories_go_on(make, refuse, files):
    """Longer ones than a model reads, and by way of a day that brings nothing of some users."""
    (files / "counts.yaml").write_text("lifetime_counts: [what]")
    log = some_log()
    log["what"] %= 4
    log.to_parquet(files / "whole.parquet")
    for name, (first, last) in {"1": (0, HALF), "2": (HALF, 75), "3": (75, 100)}.items():
        log[log["when"].between(first, last - 1)].to_parquet(files / f"{name}.parquet")
    first, _ = make("day 1", "--features", files / "counts.yaml", log="1.parquet")
    second, _ = make("day 2", *going_on(first), "--test_users", 0, log="2.parquet")
    third, _ = make("day 3", *going_on(first, second), log="3.parquet")
    whole, _ = make("whole", "--fitted", first, "--test_from", 75, log="whole.parquet")
    assert np.expm1(pd.read_parquet(whole / "test").filter(like="lifetime").to_numpy()).max() > 6
    assert rows_of(third, "train") + rows_of(third, "test") == rows_of(whole, "test")
    document = json.loads((second / "workflow.json").read_text())
    document.pop(DIGEST)
    document["history"]["longest"] = 6
    (second / "workflow.json").write_text(with_own_digest(document))
    said = refuse(*going_on(first, second), log="3.parquet")
    assert "the newest 6 interactions of each history, expected all, which `lifetime" in said


def test_what_has_no_id_is_counted(make, files, old, monkeypatch):
    log = some_log()
    new = log[log["when"] >= HALF].copy()
    new.loc[new.index[::4], "what"] += 1000
    new["who"] += np.where(new["who"] == 3, 500, 0)
    new.to_parquet(files / "strange.parquet")
    monkeypatch.setattr(preprocess_log, "number_of_buckets", lambda size: 5)
    _, output = make("strange", *going_on(old), log="strange.parquet")
    together = pd.concat([log[log["when"] < HALF], new]).groupby("who").size()
    kept = new[new["who"].map(together) >= 5]
    unseen = kept[kept["what"] >= 1000]
    assert f"left out: {len(unseen)} interactions with {unseen['what'].nunique()} items" in output
    unknown = set(kept["who"]) - set(keys_of(old, "who").values())
    assert 503 in unknown
    assert f"{len(unknown)} of the users kept have none" in output


def test_histories_are_no_shorter_for_items_without_ids(make, files, old):
    """What one run over both days leaves out crowds out nothing of what it keeps."""
    log = some_log()
    strange = log["when"].between(HALF - 20, HALF - 1) & (log.index % 3 > 0)
    log.loc[strange, "what"] += 1000
    log.to_parquet(files / "unknown both.parquet")
    log[log["when"] < HALF].to_parquet(files / "unknown old.parquet")
    split = ("--fitted", old, "--test_from", HALF)
    wanted = rows_of(make("unknown both", *split, log="unknown both.parquet")[0], "test")
    then, output = make("unknown old", "--fitted", old, log="unknown old.parquet")
    counts = log[log["when"] < HALF].groupby("who").size()
    reported = f"{(counts >= 5).sum()} of {len(counts)} users have 5 interactions or more in it"
    assert f"histories start in this log: {reported}" in output
    new, _ = make("known new", *going_on(old, then), "--test_from", HALF + 25, log="new.parquet")
    assert rows_of(new, "train") + rows_of(new, "test") == wanted


def test_a_part_that_is_empty_for_want_of_ids_says_so(refuse, files, old):
    log = some_log().sort_values("when", kind="stable")
    is_last = ~log["who"].duplicated(keep="last")
    log.loc[is_last, "what"] += 1000
    log.to_parquet(files / "last unknown.parquet")
    kept = is_last & (log.groupby("who")["what"].transform("size") >= 5)
    said = refuse("--fitted", old, "--validation", "newest", log="last unknown.parquet")
    assert (
        f"enough before it; {kept.sum()} interactions are left out: their items have no id" in said
    )


def test_dates_of_another_unit_go_on(make, refuse, files, old):
    log = some_log()
    log["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(log["when"], "h")
    half = pd.Timestamp("2024-01-01") + pd.to_timedelta(HALF, "h")
    log[log["when"] < half].to_parquet(files / "dated old.parquet")  # counts microseconds
    table = log[log["when"] >= half].astype({"when": "datetime64[ns]"})
    table.to_parquet(files / "dated new.parquet", version="2.6", coerce_timestamps="ms")
    dated_old, _ = make("dated old", log="dated old.parquet")
    dated, output = make("dated new", *going_on(dated_old), log="dated new.parquet")
    assert "; 0 interactions of the log are no later" in output
    plain, _ = make("plain new", *going_on(old), log="new.parquet")
    for mapping in ("train", "test"):
        assert rows_of(dated, mapping) == rows_of(plain, mapping)
    table.assign(when=table["when"].dt.date).to_parquet(files / "days.parquet")
    said = refuse(*going_on(dated_old), log="days.parquet")
    assert "column 'when' of the log: expected dates as fine as those of" in said
    assert "s), found date in days" in said
    said = refuse(*going_on(old), log="dated new.parquet")
    assert "its times are of the kind 'int', those of the log 'date in ms'" in said


def test_a_dataset_keeps_no_more_than_its_rules_ask_for(old):
    kept = pd.read_parquet(old / "history")
    log = some_log().query(f"when < {HALF}")
    counts = log.groupby("who").size()
    assert kept.groupby("who").size().to_dict() == counts.clip(upper=6).to_dict()
    newest = log.sort_values("when", kind="stable").groupby("who")["what"].agg(lambda g: [*g][-6:])
    ordered = kept.sort_values("when", kind="stable").groupby("who")["what"].agg(list)
    assert ordered.to_dict() == newest.to_dict()
    assert kept.groupby("who")["rows of histories so far"].first().to_dict() == counts.to_dict()


@pytest.mark.parametrize(
    ("options", "log", "message"),
    [
        (("--history", "OLD"), "new.parquet", "--history needs --fitted"),
        ((*going_on("OLD"), "--max_sequence_length", 9), "new.parquet", "the newest 6 inter"),
        (going_on("OLD", "no"), "new.parquet", "no/workflow.json"),
        (
            (*going_on("OLD"), "--shortest_sequence_for_user", 999),
            "new.parquet",
            "No user has 999 interactions or more in the histories of",
        ),
        (("--fitted", "OLD"), "new.csv", "column 'who': expected whole numbers (int64), as the wo"),
        (going_on("OLD"), "new.csv", "column 'who' of the log: expected whole numbers (int64) as"),
    ],
)
def test_what_cannot_go_on_is_refused(refuse, files, old, options, log, message):
    pd.read_parquet(files / "new.parquet").to_csv(files / "new.csv", index=False)
    options = [old if option == "OLD" else option for option in options]
    assert message in refuse(*options, log=log)


def test_changed_missing_and_unknown_histories_are_refused(refuse, old, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(old, copy)
    path = next((copy / "history").iterdir())
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert f"{path}: not the file that" in refuse(*going_on(old, copy), log="new.parquet")
    path.unlink()
    said = refuse(*going_on(old, copy), log="new.parquet")
    assert f"{path}: missing; {copy}/workflow.json names it" in said
    document = json.loads((copy / "workflow.json").read_text())
    document.pop(DIGEST)
    (copy / "workflow.json").write_text(with_own_digest({**document, "history": None}))
    assert "keeps no histories" in refuse(*going_on(old, copy), log="new.parquet")
