"""Rows of one user and time: what a sample sees of them, and what their order in a file tells."""

from __future__ import annotations

import re
from collections import Counter
from shutil import copytree

import numpy as np
import pandas as pd
import pytest
from rows_without_order import rows_of

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.checks.check_dataset import DatasetCheck
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

FROM = 60
OPTIONS = (
    "--fit_on", "all",
    "--scheduler", "single", "--shortest_sequence_for_user", 3, "--max_sequence_length", 100,
    "--test_from", FROM, "--validation", "none",
)  # fmt: skip


def basket_log(users=80, seed=3) -> pd.DataFrame:
    """Baskets of up to nine items of one time, sorted by item as shops write them."""
    random = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        for time in sorted(random.choice(80, random.integers(3, 9), replace=False)):
            for item in sorted(random.choice(300, random.integers(1, 10), replace=False)):
                rows.append((f"u{user:03d}", f"i{item:03d}", int(time)))
    return pd.DataFrame(rows, columns=["who", "what", "when"])


@pytest.fixture(scope="module")
def log_options():
    return OPTIONS


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("baskets")
    basket_log().to_parquet(directory / "log.parquet")
    basket_log().sample(frac=1, random_state=0).to_parquet(directory / "shuffled.parquet")
    return directory


@pytest.fixture(scope="module")
def made(run, files):
    """A dataset of each order, and what the run said."""
    found = {}
    for order, options in (
        ("default", ()),
        ("log", ("--order_of_equal_times", "log")),
        ("hash", ("--order_of_equal_times", "hash")),
    ):
        result = run(order, *options)
        assert result.exit_code == 0, result.output
        found[order] = files / order, result.output
    return found


def samples_of(dataset, mapping) -> pd.DataFrame:
    """Label, raw keys of user and target, and of the history in its order."""
    frame = pd.read_parquet(dataset / mapping)
    who, what = (
        pd.read_parquet(dataset / f"categories/{name}.parquet").set_index("id")["key"]
        for name in ("who", "what")
    )
    return pd.DataFrame(
        {
            "label": frame["label"],
            "who": who[frame["who"]].to_numpy(),
            "what": what[frame["what_trgt"]].to_numpy(),
            "history": [tuple(what[item] for item in items) for items in frame["what_pos"]],
        }
    )


@pytest.mark.parametrize("mapping", ["train", "test"])
def test_a_history_holds_only_what_came_before_the_samples_own_time(made, mapping):
    expected = Counter()
    for who, rows in basket_log().groupby("who"):
        for row in rows[(rows["when"] >= FROM) == (mapping == "test")].itertuples():
            before = rows[rows["when"] < row.when]
            if len(before):
                expected[who, row.what, tuple(sorted(before["what"]))] += 1
    found = samples_of(made["default"][0], mapping)
    found = found[found["label"] == 1]
    assert expected == Counter(
        (row.who, row.what, tuple(sorted(row.history))) for row in found.itertuples()
    )
    longest = found.loc[found["history"].map(len).idxmax()]
    log = basket_log().query("who == @longest.who")
    by_time = [set(rows["what"]) for _, rows in log.groupby("when")]
    begin = 0
    for basket in by_time[: len(by_time) - 1]:  # oldest first, whatever stands within a basket
        if begin < len(longest["history"]):
            assert set(longest["history"][begin : begin + len(basket)]) == basket
            begin += len(basket)


def auc_of_next_key(samples: pd.DataFrame) -> float:
    """How well a rule without training does: the key that is just above the last one's."""
    last = samples["history"].map(lambda history: int(history[-1][1:]))
    steps = samples["what"].str[1:].astype(int) - last
    scores = np.where(steps > 0, -steps, -1000)
    ones, zeros = (scores[samples["label"] == label] for label in (1, 0))
    return float((np.sign(ones[:, None] - zeros) / 2 + 0.5).mean())


def test_the_order_of_the_file_tells_nothing_unless_it_is_asked_for(made):
    aucs = {order: auc_of_next_key(samples_of(made[order][0], "test")) for order in made}
    assert aucs["default"] == pytest.approx(0.5, abs=0.07)
    assert aucs["hash"] == pytest.approx(0.5, abs=0.07)
    assert aucs["log"] > 0.7
    lengths = {o: samples_of(made[o][0], "test")["history"].map(len).mean() for o in made}
    assert lengths["hash"] == lengths["log"] > lengths["default"] + 1


def test_ids_are_not_in_the_order_of_the_keys(made):
    table = pd.read_parquet(made["default"][0] / "categories/what.parquet").sort_values("id")
    assert table["id"].tolist() == list(range(1, len(table) + 1))
    assert abs(np.corrcoef(table["id"], table["key"].str[1:].astype(int))[0, 1]) < 0.2


def test_a_run_says_that_the_file_is_sorted(run, made):
    sorted_file = "neighbouring rows that have one user and one time: the file is sorted by it"
    assert sorted_file in made["default"][1]
    assert "no sample's history holds what has its own time" in made["default"][1]
    assert "WARNING" not in made["default"][1]
    assert sorted_file in made["log"][1]
    assert "WARNING: models learn this order in place of behaviour." in made["log"][1]
    output = run("shuffled", "--order_of_equal_times", "log", log="shuffled.parquet").output
    assert sorted_file not in output
    assert "WARNING" not in output


def test_a_run_says_that_the_rank_in_the_file_tells_the_label(run, files):
    log = basket_log()
    log["clicked"] = (~log.duplicated(["who", "when"])).astype(int)  # of each time the first
    log.to_parquet(files / "ranked.parquet")
    options = ("--label_column", "clicked", "--shortest_sequence_for_user", 2)
    output = run("ranked", *options, log="ranked.parquet").output
    reported = re.search(
        r"among the rows of its user and time, tells its label \(AUC (0\.\d+)\)", output
    )
    assert float(reported[1]) < 0.2
    log.sample(frac=1, random_state=0).to_parquet(files / "ranked.parquet")
    output = run("ranked", *options, "--overwrite", log="ranked.parquet").output
    assert "tells its label" not in output


def test_checks_measure_rules_without_training(run, files, made):
    found = {}
    for order in ("unknown", "log"):
        output = run("checked", "--order_of_equal_times", order, "--overwrite").output
        assert ("key above the last" in output) == (order == "log")
        findings = DatasetCheck(DatasetDirectory.open(files / "checked")).run()
        found[order] = {(f.check, f.where): f for f in findings}
    rules = [("id above the last", "what_trgt"), ("key above the last", "what_trgt")]
    assert [found["unknown"][rule].problem for rule in rules] == [False, False]
    assert [found["log"][rule].problem for rule in rules] == [False, True]
    exact = auc_of_next_key(samples_of(made["log"][0], "test"))
    assert found["log"][rules[1]].value == pytest.approx(exact, abs=0.02)


def test_a_file_sorted_by_label_is_found(made, tmp_path):
    directory = copytree(made["default"][0], tmp_path / "dataset")
    for path in (directory / "train").iterdir():
        pd.read_parquet(path).sort_values("label").to_parquet(path)
    found = {(f.check, f.where): f for f in DatasetCheck(DatasetDirectory.open(directory)).run()}
    assert found["rank in the file", "train"].problem
    assert not found["rank in the file", "test"].problem


@pytest.mark.parametrize("order", ["unknown", "log", "hash"])
def test_both_layouts_hold_the_same_samples(run, run_cli, files, order):
    options = ("--order_of_equal_times", order, "--max_sequence_length", 6, "--overwrite")
    assert run("rows", *options).exit_code == 0
    assert run("users", *options, "--layout", "users").exit_code == 0
    output = files / "transcoded"
    result = run_cli(
        "data", "transcode", "--input", files / "users", "--output", output, "--overwrite"
    )
    assert result.exit_code == 0, result.output
    for mapping in ("train", "test"):
        assert rows_of(output, mapping) == rows_of(files / "rows", mapping)


def test_a_fitted_workflow_gives_the_same_samples(made):
    fitted = FittedWorkflow.load(made["default"][0])
    frame = fitted.samples(basket_log(), "test")
    wanted = pd.read_parquet(made["default"][0] / "test")
    histories = [Counter(map(str, rows["what_pos"].map(list))) for rows in (frame, wanted)]
    assert histories[0] == histories[1]
    rules = fitted.rules
    assert (rules.equal_times, rules.fit_on) == ("unknown", "all")


def test_ids_and_popularity_are_fitted_on_rows_that_train(run, files):
    result = run("trained", "--fit_on", "train")
    assert "fitted on: the rows that train (`--fit_on`)" in result.output
    counts = basket_log().query("when < @FROM")["what"].value_counts()
    table = pd.read_parquet(files / "trained/categories/what.parquet")
    assert dict(zip(table["key"], table["count"], strict=True)) == counts.to_dict()


def test_the_summary_adds_up(made):
    """From the rows read to the samples written."""
    log, output = basket_log(), made["default"][1]
    first = log["when"] == log.groupby("who")["when"].transform("min")
    tests = log["when"] >= FROM
    assert f"{len(log):,} interactions read; {len(log):,} of 80 users kept" in output
    assert "left out: 0 of 0 users too short" in output
    counts = f"train {(~first & ~tests).sum():,}, test {(~first & tests).sum():,}"
    assert f"interactions that are predicted: {counts}; {first.sum():,} have fewer" in output


def test_a_part_validates_unless_told_otherwise(run, run_cli, files):
    log = basket_log()

    def sizes(output, *options):
        given = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")
        result = run_cli(
            *("preprocess", "log", files / "log.parquet", "--output_path", files / output, *given),
            *("--shortest_sequence_for_user", 3, "--scheduler", "single", "--fit_on", "all"),
            *options,
        )
        assert result.exit_code == 0, result.output
        found = {}
        for mapping in DatasetDirectory.open(files / output).spec.source_spec:
            rows = samples_of(files / output, mapping)
            found[mapping] = rows[rows["label"] == 1]
        return found, result.output

    found, _ = sizes("last")
    assert list(found) == ["train", "validation", "test"]
    assert len(found["validation"]) == len(found["test"]) == log["who"].nunique()
    fitted = FittedWorkflow.load(files / "last")
    for mapping, rows in found.items():
        assert len(fitted.samples(log, mapping)) == 2 * len(rows)
    found, output = sizes("time", "--test_from", FROM)
    before = log[log["when"] < FROM]
    validation_from = int(re.search(r"what would train, from (\d+) on", output)[1])
    assert 0.03 < (before["when"] >= validation_from).mean() < 0.2
    assert len(found["validation"]) == (before["when"] >= validation_from).sum()
    rules = FittedWorkflow.load(files / "time").rules
    assert rules.validation_from == str(validation_from)
    found, _ = sizes("users parted", "--test_users", 0.2)
    parts = {mapping: set(rows["who"]) for mapping, rows in found.items()}
    assert list(parts) == ["train", "validation", "test"]
    assert not parts["validation"] & parts["test"]
    found, _ = sizes("nothing validates", "--validation", "none")
    assert list(found) == ["train", "test"]
