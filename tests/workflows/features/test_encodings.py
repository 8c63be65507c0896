"""Counts and shares of what came before, which tell nothing of the sample itself; crosses."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from feature_logs import COLUMNS

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.own_digest import DIGEST, with_own_digest
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.behaviour.behaviour_graph import explode_histories, make_samples
from merlin_sim.workflows.behaviour.fitted import FittedWorkflow

SMOOTHING = 5.0
FEATURES = """
encodings:
  what: [count, target]
  brand: [target]
smoothing: 5
crosses:
  country_brand: {columns: [country, brand], buckets: 500}
"""
OPTIONS = (
    *COLUMNS, "--item_feature_columns", "brand", "--user_feature_columns", "country",
    "--shortest_sequence_for_user", 2, "--scheduler", "single",
)  # fmt: skip


def random_log(rows=4000, seed=3) -> pd.DataFrame:
    """Nothing tells a label: whoever finds one in an encoding has looked at the label itself."""
    random = np.random.default_rng(seed)
    item, who = random.integers(0, 900, rows), random.integers(0, 60, rows)
    return pd.DataFrame(
        {
            "who": who,
            "what": item,
            "when": np.sort(random.integers(0, 3 * rows, rows)) + 1_700_000_000,
            "brand": item % 40,
            "country": [f"c{number % 5}" for number in who],
            "clicked": (random.random(rows) < 0.4).astype(int),
        }
    )


@pytest.fixture(scope="module")
def log():
    return random_log()


@pytest.fixture(scope="module")
def run(run_cli, log, tmp_path_factory):
    directory = tmp_path_factory.mktemp("encodings")
    log.to_parquet(directory / "log.parquet", row_group_size=700)
    (directory / "features.yaml").write_text(FEATURES)

    def run(output, *more, features="features.yaml", log="log.parquet"):
        given = () if "--fitted" in more else (*OPTIONS, "--features", directory / features)
        result = run_cli(
            "preprocess", "log", directory / log, "--output_path", directory / output,
            *given, *more,
        )  # fmt: skip
        if result.exception:
            raise result.exception
        return directory / output

    run.directory = directory
    return run


@pytest.fixture(scope="module")
def dataset(run):
    return run("dataset", "--label_column", "clicked")


def raw_rows(dataset, mapping):
    """A mapping's rows, with the keys in place of ids."""
    rows = pq.read_table(dataset / mapping).to_pandas()
    for domain, name in (("who", "who"), ("what", "what_trgt"), ("brand", "brand_trgt")):
        table = pd.read_parquet(dataset / "categories" / f"{domain}.parquet").set_index("id")
        rows[name] = table["key"].loc[rows[name]].to_numpy()
    return rows


def auc(labels, scores):
    order = pd.Series(scores).rank()
    ones = labels == 1
    below = order[ones].sum() - ones.sum() * (ones.sum() + 1) / 2
    return below / (ones.sum() * (~ones).sum())


def test_an_encoding_that_leaks_would_show_and_ours_tells_nothing(log, dataset):
    rows = raw_rows(dataset, "train")
    share = log.groupby("what")["clicked"].mean()
    leaking = auc(rows["label"].to_numpy(), share.loc[rows["what_trgt"]].to_numpy())
    assert leaking > 0.65  # what the whole log says of an item holds each row's own label
    for name in ("what_target_trgt", "brand_target_trgt"):
        assert abs(auc(rows["label"].to_numpy(), rows[name].to_numpy()) - 0.5) < 0.03, name


def test_each_sample_is_told_what_came_before_it_and_nothing_else(log, dataset):
    rows = raw_rows(dataset, "test")
    last = log.groupby("who").tail(1).set_index("who")
    prior = log["clicked"].mean()
    assert len(rows) == 60
    for row in rows.to_dict("records"):
        event = last.loc[row["who"]]
        assert event["what"] == row["what_trgt"]
        before = log[log["when"] < event["when"]]
        for name, key in (("what", event["what"]), ("brand", event["brand"])):
            seen = before[before[name] == key]["clicked"]
            expected = (seen.sum() + SMOOTHING * prior) / (len(seen) + SMOOTHING)
            assert row[f"{name}_target_trgt"] == pytest.approx(expected, rel=1e-5)
        seen = (before["what"] == event["what"]).sum()
        assert row["what_count_trgt"] == pytest.approx(np.log1p(seen), rel=1e-5)


def test_a_label_changes_no_sample_of_its_own_time_or_before(log, run, dataset):
    changed = log.copy()
    place = len(log) // 2
    changed.loc[place, "clicked"] = 1 - changed.loc[place, "clicked"]
    changed.to_parquet(run.directory / "changed.parquet")
    moment, key = log.loc[place, "when"], log.loc[place, "what"]
    found = {}
    for name in ("log", "changed"):
        from merlin_sim.workflows.features.event_counts import EventCounts

        events = EventCounts(run.directory / f"events of {name}")
        table = pd.read_parquet(run.directory / f"{name}.parquet")
        ids, seconds = table["what"].to_numpy() + 1, table["when"].to_numpy().astype(float)
        events.write(ids, seconds, table["clicked"].to_numpy(), 900)
        times = np.array([moment - 1, moment, moment + 1], float)
        found[name] = events.before(np.full(3, key + 1), times)[1]
    difference = (found["changed"] - found["log"]).tolist()
    assert difference[:2] == [0, 0] and abs(difference[2]) == 1


def test_a_twin_has_the_count_of_its_own_item_at_its_positives_time(log, run):
    (run.directory / "count.yaml").write_text("encodings: {what: [count]}")
    stored = run("twins", features="count.yaml")
    rows = pq.read_table(stored / "test").to_pandas()
    table = pd.read_parquet(stored / "categories" / "what.parquet").set_index("id")["key"]
    users = pd.read_parquet(stored / "categories" / "who.parquet").set_index("id")["key"]
    last = log.groupby("who")["when"].last()
    for row in rows.to_dict("records"):
        before = log[log["when"] < last.loc[users[row["who"]]]]
        seen = (before["what"] == table[row["what_trgt"]]).sum()
        assert row["what_count_trgt"] == pytest.approx(np.log1p(seen), rel=1e-5)


def test_the_next_day_gets_what_the_whole_log_said(log, run, dataset):
    tomorrow = log.assign(when=log["when"] + 3 * len(log))
    tomorrow.to_parquet(run.directory / "tomorrow.parquet")
    output = run("next", "--fitted", dataset, log="tomorrow.parquet")
    rows = raw_rows(output, "test")
    shown = log.groupby("what")["clicked"].agg(["sum", "size"]).loc[rows["what_trgt"]]
    prior = log["clicked"].mean()
    expected = (shown["sum"] + SMOOTHING * prior) / (shown["size"] + SMOOTHING)
    np.testing.assert_allclose(rows["what_target_trgt"], expected, rtol=1e-5)


def test_no_row_is_told_what_counted_it(log, run, dataset):
    """What a dataset counted holds its own rows' labels: they are refused on every way in."""
    with pytest.raises(MerlinSimError, match="3,853 of 3,853 interactions .* fit anew"):
        run("again", "--fitted", dataset)
    partly = log.assign(when=log["when"] + 2000)
    partly.to_parquet(run.directory / "partly.parquet")
    with pytest.raises(MerlinSimError, match="3,[0-6].. of 3,853 interactions"):
        run("partly", "--fitted", dataset, log="partly.parquet")
    fitted = FittedWorkflow.load(dataset)
    tomorrow = log.assign(when=log["when"] + 3 * len(log))
    assert len(fitted.samples("train").transform(fitted.rows(tomorrow)))
    with pytest.raises(Exception, match="interactions .* no later"):
        fitted.samples("train").transform(fitted.rows(log))


def test_earlier_rows_of_histories_may_be_what_was_counted(log, run, dataset):
    tomorrow = log[:400].assign(when=log["when"][:400] + 3 * len(log))
    tomorrow.to_parquet(run.directory / "few.parquet")
    output = run("goes_on", "--fitted", dataset, "--history", dataset, log="few.parquet")
    assert raw_rows(output, "test")["what_pos"].map(len).min() > 10


def test_a_dataset_that_does_not_say_what_it_counted_is_refused(run, dataset):
    copy = run.directory / "former"
    shutil.copytree(dataset, copy)
    document = json.loads((copy / "workflow.json").read_text())
    del document[DIGEST], document["features"]["counted_until"], document["rules"]["feature_values"]
    (copy / "workflow.json").write_text(with_own_digest(document | {"format": 5}))
    with pytest.raises(MerlinSimError, match="former.*does not say until when"):
        run("of_former", "--fitted", copy)


def test_a_graph_of_ones_own_says_what_it_counts(dataset):
    fitted = FittedWorkflow.load(dataset)
    schema = DatasetDirectory.open(dataset).schema
    prefixes = explode_histories(["who"], fitted.columns, fitted.rules, "train")
    with pytest.raises(MerlinSimError, match="`events`"):
        make_samples(prefixes, fitted.columns, fitted.rules, fitted.vocabularies, schema)


def test_equal_pairs_have_one_cross_and_other_pairs_hardly_ever(dataset):
    rows = pq.read_table(dataset / "train").to_pandas()
    rows["cross"] = rows["country_brand"].map(lambda ids: ids[0])
    pairs = rows.groupby(["country", "brand_trgt"])["cross"].agg(["nunique", "first"])
    assert (pairs["nunique"] == 1).all() and len(pairs) == 200
    assert pairs["first"].between(1, 500).all() and pairs["first"].nunique() > 150
    opened = DatasetDirectory.open(dataset)
    assert opened.channels["target_item_lists"] == ["country_brand"]
    assert opened.spec.feature_spec["country_brand"].cardinality == 500


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("encodings: {what: [target]}", (), "yaml: .*'target' needs a column of labels"),
        ("encodings: {who: [count]}", (), "yaml: encodings.who: expected the item"),
        ("encodings: {what: [mean]}", (), "expected a list of count, target"),
        ("crosses: {x: {columns: [brand], buckets: 3}}", (), "at least two features"),
        ("crosses: {x: {columns: [brand, shop], buckets: 3}}", (), "yaml: crosses.x.*: shop"),
        ("crosses: {brand: {columns: [brand, who], buckets: 3}}", (), "yaml: .*different from"),
        ("encodings: {what: [count]}", ("--layout", "users"), "need `--layout samples`"),
    ],
)
def test_what_cannot_be_is_refused(text, options, reason, run):
    (run.directory / "wrong.yaml").write_text(text)
    with pytest.raises(Exception, match=reason.replace("(", r"\(")):
        run("wrong", *options, features="wrong.yaml")
