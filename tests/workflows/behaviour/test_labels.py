"""A log of what was shown: rows with 1 were taken and join the history, rows with 0 were not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

OPTIONS = (
    "--fit_on", "all",
    "--item_feature_columns", "brand", "--scheduler", "single",
    "--shortest_sequence_for_user", 3, "--max_sequence_length", 4,
    "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip


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
        for place, row in enumerate(rows.itertuples()):
            earlier = rows[(rows["when"] < row.when) & (rows["clicked"] == 1)]
            history = list(earlier["what"])
            sample = (who, row.what, row.clicked, tuple(history[-longest:]))
            if place == len(rows) - 1:
                samples["test"][sample] += 1
            elif history:
                samples["train"][sample] += 1
    return samples


def stored_samples(dataset, mapping) -> tuple[Counter, pd.DataFrame]:
    frame = pd.read_parquet(dataset / mapping)
    table = {
        name: pd.read_parquet(dataset / f"categories/{name}.parquet") for name in ("who", "what")
    }
    key = {name: dict(zip(t["id"], t["key"], strict=True)) for name, t in table.items()}
    rows = Counter(
        (
            key["who"].get(r.who),
            key["what"][r.what_trgt],
            r.label,
            tuple(map(key["what"].get, r.what_pos)),
        )
        for r in frame.itertuples()
    )
    return rows, frame


def of_known_users(samples: Counter, dataset) -> Counter:
    """The same, with None for users that the dataset does not know."""
    known = set(pd.read_parquet(dataset / "categories/who.parquet")["key"])
    found = Counter()
    for (who, *others), count in samples.items():
        found[(who if who in known else None, *others)] += count
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shown")
    shown_log().to_parquet(directory / "log.parquet", row_group_size=90)
    return directory


@pytest.fixture(scope="module")
def log_options():
    return OPTIONS


@pytest.fixture(scope="module")
def labelled(run, files):
    result = run("labelled", "--label_column", "clicked")
    assert result.exit_code == 0, result.output
    return files / "labelled", result.output


def test_taken_items_are_the_history_and_all_rows_are_samples(labelled):
    dataset, output = labelled
    expected = plain_samples(shown_log())
    for mapping in ("train", "test"):
        found, frame = stored_samples(dataset, mapping)
        assert found == expected[mapping]
        assert frame["label"].dtype == np.int8
        assert (frame["what_pos"].map(len) == frame["what_neg"].map(len)).all()
    log = kept(shown_log())
    taken = log["clicked"].sum()
    assert 0 < len(log) < 600
    assert f"labels: {taken} taken (1), {len(log) - taken} shown and not taken (0)" in output
    assert "which is not read" not in output


def test_equal_times_keep_the_logs_order_and_are_counted(labelled):
    log = kept(shown_log())
    same = len(log) - len(log.drop_duplicates(["who", "when"]))
    assert same > 50
    assert (
        f"{same:,} have the time of an earlier one of their user: they stand in the order"
        in (labelled[1])
    )


@pytest.mark.slow
def test_popularity_is_of_what_was_taken(run, files):
    given = ("--label_column", "clicked", "--fit_on", "train")
    assert run("of rows that train", *given).exit_code == 0
    table = pd.read_parquet(files / "of rows that train/categories/what.parquet")
    log = kept(shown_log()).sort_values("when", kind="stable")
    trains = log[log["who"].duplicated(keep="last")]  # each user's last row tests
    taken = trains[trains["clicked"] == 1]["what"].value_counts()
    assert table["count"].tolist() == [taken.get(key, 0) for key in table["key"]]


@pytest.mark.slow
def test_negatives_that_are_asked_for_stand_beside_those_of_the_log(run, files, labelled):
    options = ("--label_column", "clicked", "--negatives", "uniform", "--negatives_per_positive", 3)
    assert run("drawn", *options).exit_code == 0
    before, _ = stored_samples(labelled[0], "train")
    after, _ = stored_samples(files / "drawn", "train")
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


@pytest.mark.slow
def test_more_negatives_of_a_log_without_labels(run, files):
    for count in (1, 2):
        assert run(f"twins{count}", "--negatives_per_positive", count).exit_code == 0
    one, two = (stored_samples(files / f"twins{count}", "train")[0] for count in (1, 2))
    assert not one - two  # the first negative of each positive stays the same
    assert sum(two.values()) == 1.5 * sum(one.values())
    assert {label for _, _, label, _ in two - one} == {0}


@pytest.mark.slow
def test_a_log_in_csv_is_read_alike_whatever_its_labels_are_called(run, files, labelled):
    words = {0: ["0", "0.0", "False", "false"], 1: ["1", "1.0", "True", " true"]}
    log = shown_log()
    log["clicked"] = [words[label][n % 4] for n, label in enumerate(log["clicked"])]
    log.to_csv(files / "words.csv", index=False)
    result = run("csv", "--label_column", "clicked", log="words.csv")
    assert result.exit_code == 0, result.output
    expected, _ = stored_samples(labelled[0], "train")
    found, _ = stored_samples(files / "csv", "train")
    assert {
        (int(w), int(i), y, tuple(map(int, h))): n for (w, i, y, h), n in found.items()
    } == expected


@pytest.mark.slow
def test_a_fitted_workflow_knows_the_label(run, files, labelled):
    shown_log(seed=1).to_parquet(files / "next.parquet")
    result = run("next", "--fitted", labelled[0], log="next.parquet")
    assert result.exit_code == 0, result.output
    known = set(pd.read_parquet(labelled[0] / "categories/what.parquet")["key"])
    log = shown_log(seed=1)
    assert set(log["what"]) <= known
    found, _ = stored_samples(files / "next", "test")
    assert found == of_known_users(plain_samples(log)["test"], labelled[0])
    frame = kept(log).assign(clicked=lambda rows: rows["clicked"].astype(bool))
    for mapping in ("train", "test"):
        made = FittedWorkflow.load(files / "next").samples(frame, mapping)
        stored = pd.read_parquet(files / "next" / mapping)
        assert _rows(made) == _rows(stored)


@pytest.mark.slow
def test_items_without_an_id_leave_their_labels_too(run, files, labelled):
    log = shown_log(seed=2)
    log.loc[::5, "what"] += 1000
    log.to_parquet(files / "strange.parquet")
    result = run("strange", "--fitted", labelled[0], log="strange.parquet")
    assert result.exit_code == 0, result.output
    # Users are chosen before items are known.
    known = kept(log).query("what < 1000")
    found, _ = stored_samples(files / "strange", "train")
    assert found == of_known_users(plain_samples(known, shortest=0)["train"], labelled[0])


def _rows(frame) -> Counter:
    return Counter(
        tuple(tuple(map(int, value)) if np.ndim(value) else int(value) for value in row)
        for row in frame.itertuples(index=False)
    )


@pytest.mark.slow
def test_a_log_with_one_taken_item_is_refused(run, files):
    log = shown_log()
    log["clicked"] = (log["what"] == 3).astype(int)
    log.to_parquet(files / "one.parquet")
    short = ("--label_column", "clicked", "--shortest_sequence_for_user", 1)
    message = str(run("one", *short, log="one.parquet").exception)
    assert "one.parquet: column 'what': expected taken items (label 1) with at least" in message
    assert "found only 3" in message
    result = run("uniform", *short, "--negatives", "uniform", log="one.parquet")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("wrong", [2, -1, 0.5, None])
def test_bad_labels_are_refused_with_file_and_row(run, files, wrong):
    log = shown_log()
    log["clicked"] = log["clicked"].astype(float)
    log.loc[6, "clicked"] = wrong
    log.to_parquet(files / "wrong.parquet")
    result = run("wrong", "--label_column", "clicked", log="wrong.parquet")
    found = "nothing" if wrong is None else repr(float(wrong))
    found = "nan" if wrong is None else found
    message = str(result.exception)
    assert "wrong.parquet, line 7: 'clicked': expected 0 or 1, found" in message
    assert found in message or "nothing" in message
    assert not (files / "wrong").exists()


@pytest.mark.slow
def test_bad_labels_in_csv_are_left_out_and_counted_on_request(run, files):
    log = shown_log().astype({"clicked": str})
    log.loc[3, "clicked"], log.loc[8, "clicked"] = "yes", ""
    log.to_csv(files / "yes.csv", index=False)
    result = run("yes", "--label_column", "clicked", log="yes.csv")
    assert "yes.csv, line 5: 'clicked': expected 0 or 1, found 'yes'" in str(result.exception)
    options = ("--label_column", "clicked", "--on_bad_rows", "skip")
    assert "2 bad rows left out (line 5" in run("yes", *options, log="yes.csv").output


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
def test_what_cannot_be_is_refused(run, files, options, message):
    result = run("refused", *options)
    assert message in str(result.exception) + result.output
    assert result.exit_code != 0
    assert not (files / "refused").exists()


@pytest.mark.parametrize(("name", "reported"), [("Clicked", True), ("shade", False)])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_looks_like_a_label_is_reported(run, files, name, reported, kind):
    log = shown_log().rename(columns={"clicked": name})
    if kind == "csv":
        log.to_csv(files / "unread.csv", index=False)
    else:
        log.to_parquet(files / "unread.parquet")
    # The notice comes before anything is read, so a run that stops at once will do.
    result = run("unread", "--negatives", "none", log=f"unread.{kind}")
    assert (f"column {name!r} of 0 and 1, which is not read" in result.output) == reported


@pytest.mark.slow
def test_a_page_shown_at_one_time_tells_nothing_of_itself(run, files):
    """One of five items of a page is taken: whoever saw it in the history would know the rest."""
    random = np.random.default_rng(0)
    pages = pd.DataFrame({"who": np.repeat(np.arange(20), 6), "when": np.tile(np.arange(6), 20)})
    log = pages.loc[pages.index.repeat(5)].reset_index(drop=True)
    log["what"] = random.integers(0, 30, len(log))
    log["brand"] = log["what"] % 4
    log["clicked"] = (log.groupby(["who", "when"]).cumcount() == 1).astype(int)
    log.to_parquet(files / "pages.parquet")
    result = run("pages", "--label_column", "clicked", log="pages.parquet")
    assert result.exit_code == 0, result.output
    assert "no sample's history holds what has its own time" in result.output
    rows = pd.read_parquet(files / "pages/train")
    lengths = rows["what_pos"].map(len)
    assert (rows.groupby(lengths)["label"].mean().loc[[1, 2, 3]] == 0.2).all()
