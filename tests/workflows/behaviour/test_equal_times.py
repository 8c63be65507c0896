"""Rows of one user and time: what a sample sees of them, and what their order in a file tells."""

from __future__ import annotations

import re
from collections import Counter
from shutil import copytree

import numpy as np
import pandas as pd
import pytest
from fed_samples import assert_same_samples
from stored_samples import keys_of, samples_of

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.checks.check_dataset import DatasetCheck
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

FROM = 60


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
    return (
        "--fit_on", "all", "--scheduler", "single", "--shortest_sequence_for_user", 3,
        "--max_sequence_length", 100, "--validation", "none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("baskets")
    basket_log().to_parquet(directory / "log.parquet")
    return directory


@pytest.fixture(scope="module")
def made(make):
    """A dataset of each order, and what the run said."""
    found = {"default": make("default", "--test_from", FROM)}
    for order in ("log", "hash"):
        found[order] = make(order, "--test_from", FROM, "--order_of_equal_times", order)
    return found


@pytest.mark.parametrize("mapping", ["train", "test"])
def test_a_history_holds_only_what_came_before_the_samples_own_time(made, mapping):
    expected = Counter()
    for who, rows in basket_log().groupby("who"):
        for row in rows[(rows["when"] >= FROM) == (mapping == "test")].itertuples():
            before = rows[rows["when"] < row.when]
            if len(before):
                expected[who, row.what, tuple(sorted(before["what"]))] += 1
    found = samples_of(made["default"][0], mapping, label=1)
    assert expected == Counter(
        (who, what, tuple(sorted(history))) for who, what, _, history in found.elements()
    )
    who, _, _, longest = max(found, key=lambda sample: len(sample[3]))
    baskets = [set(rows["what"]) for _, rows in basket_log().query("who == @who").groupby("when")]
    begin = 0
    for basket in baskets[: len(baskets) - 1]:  # oldest first, whatever stands within a basket
        if begin < len(longest):
            assert set(longest[begin : begin + len(basket)]) == basket
            begin += len(basket)


def auc_of_next_key(samples: Counter) -> float:
    """How well a rule without training does: the key that is just above the last one's."""
    scores = {0: [], 1: []}
    for _, what, label, history in samples.elements():
        step = int(what[1:]) - int(history[-1][1:])
        scores[label].append(-step if step > 0 else -1000)
    ones, zeros = np.array(scores[1]), np.array(scores[0])
    return float((np.sign(ones[:, None] - zeros) / 2 + 0.5).mean())


def test_the_order_of_the_file_tells_nothing_unless_it_is_asked_for(made):
    samples = {order: samples_of(made[order][0], "test") for order in made}
    aucs = {order: auc_of_next_key(found) for order, found in samples.items()}
    assert aucs["default"] == pytest.approx(0.5, abs=0.07)
    assert aucs["hash"] == pytest.approx(0.5, abs=0.07)
    assert aucs["log"] > 0.7
    lengths = {
        order: np.mean([len(sample[3]) for sample in found.elements()])
        for order, found in samples.items()
    }
    assert lengths["hash"] == lengths["log"] > lengths["default"] + 1
    found = {}
    for order in ("default", "log"):
        findings = DatasetCheck(DatasetDirectory.open(made[order][0])).run()
        found[order] = {(f.check, f.where): f for f in findings}
        assert ("key above the last" in made[order][1]) == (order == "log")
    rules = [("id above the last", "what_trgt"), ("key above the last", "what_trgt")]
    assert [found["default"][rule].problem for rule in rules] == [False, False]
    assert [found["log"][rule].problem for rule in rules] == [False, True]
    assert found["log"][rules[1]].value == pytest.approx(aucs["log"], abs=0.02)


def test_ids_are_not_in_the_order_of_the_keys(made):
    keys = keys_of(made["default"][0], "what")
    ids = range(1, len(keys))
    assert abs(np.corrcoef(ids, [int(keys[number][1:]) for number in ids])[0, 1]) < 0.2


def test_a_run_says_that_the_file_is_sorted_and_its_counts_add_up(make, made):
    sorted_file = "neighbouring rows that have one user and one time: the file is sorted by it"
    output = made["default"][1]
    assert sorted_file in output
    assert "no sample's history holds what has its own time" in output
    assert "WARNING" not in output
    assert "nothing validates" in output.splitlines()
    assert sorted_file in made["log"][1]
    assert "WARNING: models learn this order in place of behaviour." in made["log"][1]
    log = basket_log()
    first = log["when"] == log.groupby("who")["when"].transform("min")
    tests = log["when"] >= FROM
    assert f"{len(log):,} interactions read; {len(log):,} of 80 users kept" in output
    assert "left out: 0 of 0 users too short" in output
    counts = f"train {(~first & ~tests).sum():,}, test {(~first & tests).sum():,}"
    assert f"interactions that are predicted: {counts}; {first.sum():,} have fewer" in output


def test_a_run_says_that_the_rank_in_the_file_tells_the_label(make, files):
    log = basket_log()
    log["clicked"] = (~log.duplicated(["who", "when"])).astype(int)  # of each time the first
    log.to_parquet(files / "ranked.parquet")
    options = ("--label_column", "clicked", "--shortest_sequence_for_user", 2)
    _, output = make("ranked", *options, log="ranked.parquet")
    reported = re.search(
        r"among the rows of its user and time, tells its label \(AUC (0\.\d+)\)", output
    )
    assert float(reported[1]) < 0.2


def test_a_file_sorted_by_label_is_found(made, tmp_path):
    directory = copytree(made["default"][0], tmp_path / "dataset")
    for path in (directory / "train").iterdir():
        pd.read_parquet(path).sort_values("label").to_parquet(path)
    found = {(f.check, f.where): f for f in DatasetCheck(DatasetDirectory.open(directory)).run()}
    assert found["rank in the file", "train"].problem
    assert not found["rank in the file", "test"].problem


def test_both_layouts_hold_the_same_samples(make, made):
    users, _ = make("users", "--test_from", FROM, "--layout", "users")
    assert assert_same_samples(users, made["default"][0]) > 1000


def test_a_fitted_workflow_gives_the_same_samples(made):
    fitted = FittedWorkflow.load(made["default"][0])
    frame = fitted.samples(basket_log(), "test")
    wanted = pd.read_parquet(made["default"][0] / "test")
    histories = [Counter(map(str, rows["what_pos"].map(list))) for rows in (frame, wanted)]
    assert histories[0] == histories[1]
    rules = fitted.rules
    assert (rules.equal_times, rules.fit_on) == ("unknown", "all")


def test_a_part_validates_unless_set_otherwise(preprocess_log, files):
    log = basket_log()

    def parts(output, *options):
        """The positives of each part, and what the command printed."""
        dataset, said = preprocess_log(
            files / output, files / "log.parquet", "--shortest_sequence_for_user", 3,
            "--fit_on", "all", *options,
        )  # fmt: skip
        mappings = DatasetDirectory.open(dataset).spec.source_spec
        return {m: samples_of(dataset, m, label=1) for m in mappings}, said

    found, _ = parts("last")
    assert list(found) == ["train", "validation", "test"]
    assert found["validation"].total() == found["test"].total() == log["who"].nunique()
    fitted = FittedWorkflow.load(files / "last")
    for mapping, samples in found.items():
        assert len(fitted.samples(log, mapping)) == 2 * samples.total()
    found, output = parts("time", "--test_from", FROM)
    before = log[log["when"] < FROM]
    validation_from = int(re.search(r"what would train, from (\d+) on", output)[1])
    assert 0.03 < (before["when"] >= validation_from).mean() < 0.2
    assert found["validation"].total() == (before["when"] >= validation_from).sum()
    assert FittedWorkflow.load(files / "time").rules.validation_from == str(validation_from)
