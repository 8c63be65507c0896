"""Counts and shares of what came before, which tell nothing of the sample itself; crosses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fed_samples import assert_same_samples
from hypothesis import given
from hypothesis import strategies as st
from preprocess_runs import all_bytes
from stored_samples import keys_of

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.recency import NEVER
from merlin_sim.workflows.known_values import last_days
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

SMOOTHING = 5.0
LASTS = 1_200_000
"""Seconds from the first row of a log to the last one: two weeks."""
FEATURES = """
encodings:
  what: [count, recency, target]
  brand: [popularity, target, recency, recent_popularity]
smoothing: 5
features:
  row: {type: number, of: interaction}
crosses:
  country_brand: {columns: [country, brand], buckets: 500}
"""
OPTIONS = (
    "--fit_on", "all", "--item_feature_columns", "brand", "--user_feature_columns", "country",
    "--shortest_sequence_for_user", 2,
)  # fmt: skip


def random_log(rows=2000, seed=3) -> pd.DataFrame:
    """Nothing tells a label: whoever finds one in an encoding has looked at the label itself."""
    random = np.random.default_rng(seed)
    item, who = random.integers(0, 900, rows), random.integers(0, 60, rows)
    return pd.DataFrame(
        {
            "who": who,
            "what": item,
            "when": np.sort(random.integers(0, 12_000, rows)) * LASTS // 12_000 + 1_700_000_000,
            "brand": item % 40,
            "country": [f"c{number % 5}" for number in who],
            "clicked": (random.random(rows) < 0.4).astype(int),
            "row": np.arange(rows),
        }
    )


@pytest.fixture(scope="module")
def log():
    return random_log()


@pytest.fixture(scope="module")
def run(preprocess_log, log, tmp_path_factory):
    directory = tmp_path_factory.mktemp("encodings")
    log.to_parquet(directory / "log.parquet", row_group_size=700)
    (directory / "features.yaml").write_text(FEATURES)

    def run(output, *more, features="features.yaml", log="log.parquet"):
        given = () if "--fitted" in more else (*OPTIONS, "--features", directory / features)
        return preprocess_log(directory / output, directory / log, *given, *more)[0]

    run.directory = directory
    return run


@pytest.fixture(scope="module")
def dataset(run):
    return run("dataset", "--label_column", "clicked")


def raw_rows(dataset, mapping):
    """A mapping's rows, with the keys in place of ids."""
    rows = pq.read_table(dataset / mapping).to_pandas()
    for domain, name in (("who", "who"), ("what", "what_trgt"), ("brand", "brand_trgt")):
        keys = keys_of(dataset, domain)
        rows[name] = [keys[number] for number in rows[name]]
    return rows


def log_days(log, name, key, when):
    """What ``recency`` should be of a key at a time."""
    days = log["when"][log[name] == key] // 86_400
    earlier = days[days < when // 86_400]
    return np.log1p(3650 if earlier.empty else when // 86_400 - earlier.max())


def recent_popularity(before, brand):
    """What it should be of a brand after some rows: a row weighs half of one a week newer."""
    weights = 0.5 ** ((before["when"].max() - before["when"]) / (7 * 86_400))
    share = weights[before["brand"] == brand].sum() / (weights.sum() + 1000)
    return pytest.approx(np.log1p(100_000 * share), rel=1e-5)


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


def test_each_sample_has_what_came_before_it_and_nothing_else(log, dataset):
    train, rows = (raw_rows(dataset, mapping) for mapping in ("train", "test"))
    prior = log["clicked"].mean()
    assert len(rows) == 60
    some = train.sample(200, random_state=0)
    for row in pd.concat([rows, some]).to_dict("records"):
        event = log.loc[int(row["row"])]
        assert (event["who"], event["what"]) == (row["who"], row["what_trgt"])
        before = log[log["when"] < event["when"]]
        for name, key in (("what", event["what"]), ("brand", event["brand"])):
            seen = before[before[name] == key]["clicked"]
            expected = (seen.sum() + SMOOTHING * prior) / (len(seen) + SMOOTHING)
            assert row[f"{name}_target_trgt"] == pytest.approx(expected, rel=1e-5)
            days = log_days(log, name, key, event["when"])
            assert row[f"{name}_recency_trgt"] == pytest.approx(days, rel=1e-6)
        seen = (before["what"] == event["what"]).sum()
        assert row["what_count_trgt"] == pytest.approx(np.log1p(seen), rel=1e-5)
        share = (before["brand"] == event["brand"]).sum() / (len(before) + 1000)
        assert row["brand_popularity_trgt"] == pytest.approx(np.log1p(100_000 * share), rel=1e-5)
        recent = recent_popularity(before, event["brand"])
        assert row["brand_recent_popularity_trgt"] == recent


@pytest.fixture(scope="module")
def later_log(log):
    """It begins on the day on which the other one ends."""
    later = log[:900].drop_duplicates(["who", "what"])
    later = later.assign(when=later["when"] + LASTS)
    assert later["when"].min() // 86_400 == log["when"].max() // 86_400
    return later


@pytest.fixture(scope="module")
def later(later_log, run, dataset):
    later_log.to_parquet(run.directory / "later.parquet")
    return run("later", "--fitted", dataset, "--history", dataset, log="later.parquet")


def test_one_row_a_user_gives_the_same_samples_on_a_later_day(run, dataset, later):
    """Whose histories may be what was counted."""
    goes_on = ("--fitted", dataset, "--history", dataset, "--layout", "users")
    assert assert_same_samples(run("next users", *goes_on, log="later.parquet"), later) > 700
    assert raw_rows(later, "test")["what_pos"].map(len).mean() > 12


def test_a_negative_has_the_count_of_its_own_item_at_its_positives_time(log, run):
    (run.directory / "count.yaml").write_text("encodings: {what: [count]}")
    stored = run("negatives", features="count.yaml")
    last = log.groupby("who")["when"].last()
    for row in raw_rows(stored, "test").to_dict("records"):
        before = log[log["when"] < last.loc[row["who"]]]
        seen = (before["what"] == row["what_trgt"]).sum()
        assert row["what_count_trgt"] == pytest.approx(np.log1p(seen), rel=1e-5)


def test_a_later_log_gets_what_was_fitted_and_counts_its_days_from_there(
    log, later_log, later, dataset
):
    parts = [raw_rows(later, mapping) for mapping in ("train", "validation", "test")]
    when = later_log.set_index(["who", "what"])["when"]
    of_same_day = 0
    for row in pd.concat(parts).to_dict("records"):
        at = when[row["who"], row["what_trgt"]]
        of_same_day += at // 86_400 == log["when"].max() // 86_400
        for name in ("what", "brand"):
            expected = log_days(log, name, row[f"{name}_trgt"], at)
            assert row[f"{name}_recency_trgt"] == pytest.approx(expected, rel=1e-6)
    assert of_same_day > 3
    rows = parts[2]
    shown = log.groupby("what")["clicked"].agg(["sum", "size"]).loc[rows["what_trgt"]]
    prior = log["clicked"].mean()
    expected = (shown["sum"] + SMOOTHING * prior) / (shown["size"] + SMOOTHING)
    np.testing.assert_allclose(rows["what_target_trgt"], expected, rtol=1e-5)
    share = log.groupby("brand").size().loc[rows["brand_trgt"]] / (len(log) + 1000)
    np.testing.assert_allclose(rows["brand_popularity_trgt"], np.log1p(100_000 * share), rtol=1e-5)
    for row in rows[:50].to_dict("records"):
        recent = recent_popularity(log, row["brand_trgt"])
        assert row["brand_recent_popularity_trgt"] == recent
    stored = pq.read_table(later / "test").to_pandas().set_index("who")
    made = FittedWorkflow.load(dataset).samples(later_log, "test").set_index("who")
    for name in ("what_recency_trgt", "brand_recency_trgt", "brand_recent_popularity_trgt"):
        np.testing.assert_array_equal(made.loc[stored.index, name], stored[name])


def test_no_row_has_what_counted_it(log, run, dataset):
    """What a dataset counted holds its own rows' labels: they are refused on every way in."""
    with pytest.raises(MerlinSimError, match=r"(1,\d{3}) of \1 interactions .* fit anew"):
        run("again", "--fitted", dataset)
    partly = log.assign(when=log["when"] + LASTS // 6)
    partly.to_parquet(run.directory / "partly.parquet")
    with pytest.raises(MerlinSimError, match=r"(1,\d{3}) of (?!\1)1,\d{3} interactions"):
        run("partly", "--fitted", dataset, log="partly.parquet")
    fitted = FittedWorkflow.load(dataset)
    tomorrow = log.assign(when=log["when"] + LASTS)
    made = fitted.samples(tomorrow, "train")
    taken = log["clicked"].groupby(log["what"]).agg(["sum", "size"])
    keys = pd.read_parquet(dataset / "categories" / "what.parquet").set_index("id")["key"]
    of_item = taken.loc[keys[made["what_trgt"]]].reset_index(drop=True)
    expected = (of_item["sum"] + SMOOTHING * log["clicked"].mean()) / (of_item["size"] + SMOOTHING)
    np.testing.assert_allclose(made["what_target_trgt"], expected, rtol=1e-5)
    for mapping, of in (("train", r"1,\d{3}"), ("validation", "60"), ("test", "60")):
        message = rf"the log: ({of}) of \1 interactions .* no later"
        with pytest.raises(MerlinSimError, match=message):
            fitted.samples(log, mapping)


def test_equal_pairs_have_one_cross_and_other_pairs_hardly_ever(dataset):
    rows = pq.read_table(dataset / "train").to_pandas()
    rows["cross"] = rows["country_brand"].map(lambda ids: ids[0])
    pairs = rows.groupby(["country", "brand_trgt"])["cross"].agg(["nunique", "first"])
    assert (pairs["nunique"] == 1).all() and len(pairs) > 190
    assert pairs["first"].between(1, 500).all() and pairs["first"].nunique() > 150
    opened = DatasetDirectory.open(dataset)
    assert opened.channels["target_item_lists"] == ["country_brand"]
    assert opened.spec.feature_spec["country_brand"].cardinality == 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("encodings: {what: [target]}", "yaml: .*'target' needs a column of labels"),
        ("encodings: {who: [count]}", "yaml: encodings.who: expected the item"),
        (
            "encodings: {what: [mean]}",
            "expected a list of count, popularity, recency, recent_popularity, target",
        ),
        (
            "features: {what_last_day: {type: category, of: item}}\nencodings: {what: [recency]}",
            "yaml: .*different from",
        ),
        ("crosses: {x: {columns: [brand], buckets: 3}}", "at least two features"),
        ("crosses: {x: {columns: [brand, shop], buckets: 3}}", "yaml: crosses.x.*: shop"),
        ("crosses: {brand: {columns: [brand, who], buckets: 3}}", "yaml: .*different from"),
    ],
)
def test_what_cannot_be_is_refused(text, reason, run):
    (run.directory / "wrong.yaml").write_text(text)
    with pytest.raises(Exception, match=reason.replace("(", r"\(")):
        run("wrong", features="wrong.yaml")


def test_the_option_counts_stands_for_a_file_that_names_all_of_them(log, run, dataset):
    named = """
encodings: {what: [count, target], brand: [target]}
lifetime_counts: [what, brand]
"""
    (run.directory / "named.yaml").write_text(named)
    (run.directory / "brand.yaml").write_text("encodings: {brand: [target]}")
    log[:300].to_parquet(run.directory / "few.parquet")
    label = ("--label_column", "clicked", "--layout", "users")
    by_file = run("by file", *label, features="named.yaml", log="few.parquet")
    by_option = run("by option", "--counts", *label, features="brand.yaml", log="few.parquet")
    for name in ("users", "events"):
        assert all_bytes(by_file / name) == all_bytes(by_option / name)
    specs = [DatasetDirectory.open(path).spec for path in (by_file, by_option)]
    assert specs[0] == specs[1]
    assert {"brand_target_trgt", "brand_lifetime_count_trgt"} <= {*specs[0].feature_spec}
    with pytest.raises(SystemExit, match="2"):
        run("by fitted", "--counts", "--fitted", dataset)


def test_a_brand_that_first_stands_in_a_row_that_tests_has_no_numbers(log, run):
    """It was not fitted, so it has no id; days are those of the whole log whatever was fitted."""
    fitted = log.drop(log.groupby("who").tail(2).index)
    last = log.groupby("who").tail(1)
    which = last.index[last["what"].isin(fitted["what"])][0]
    log.assign(brand=log["brand"].where(log.index != which, 77)).to_parquet(
        run.directory / "new brand.parquet"
    )
    options = ("--label_column", "clicked", "--fit_on", "train")
    stored = run("new brand", *options, log="new brand.parquet")
    row = raw_rows(stored, "test").set_index("who").loc[log.loc[which, "who"]]
    assert row["what_trgt"] == log.loc[which, "what"] and np.isnan(row["brand_trgt"])
    assert row["brand_popularity_trgt"] == 0
    assert row["brand_recent_popularity_trgt"] == 0
    assert row["brand_recency_trgt"] == pytest.approx(np.log1p(3650), rel=1e-6)
    table = pd.read_parquet(stored / "categories/what.parquet").set_index("key")
    for key, days in (log["when"] // 86_400).groupby(log["what"]):
        if key in table.index:
            found = table.loc[key, ["what_last_day", "what_day_before"]].tolist()
            assert found == [*sorted(set(days), reverse=True), NEVER][:2]
    assert FittedWorkflow.load(stored).numbers.counted_until == log["when"].max()


def test_recent_popularity_is_as_of_the_newest_row_with_an_id(log, run):
    """In samples and in the item table, whatever else is counted."""
    fitted = log.drop(log.groupby("who").tail(2).index)
    last = log.groupby("who").tail(1)
    unknown, later = last.index[last["what"].isin(fitted["what"])][:2]
    day = 86_400
    stored = log.assign(
        brand=log["brand"].where(log.index != unknown, 77),
        when=log["when"] + 21 * day * (log.index == unknown) + 22 * day * (log.index == later),
    )
    stored.to_parquet(run.directory / "late.parquet")
    made = run("late", "--label_column", "clicked", "--fit_on", "train", log="late.parquet")
    row = raw_rows(made, "test").set_index("who").loc[log.loc[later, "who"]]
    known = stored[stored["what"].isin(fitted["what"])].drop(index=unknown)
    brand = log.loc[later, "brand"]
    expected = recent_popularity(known.drop(index=later), brand)
    assert row["brand_recent_popularity_trgt"] == expected
    table = pd.read_parquet(made / "categories/what.parquet").set_index("key")
    assert table.loc[row["what_trgt"], "brand_recent_popularity"] == recent_popularity(known, brand)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 6)), max_size=30))
def test_rows_of_any_order_report_the_last_two_days(rows):
    ids, days = np.array(rows, np.int64).reshape(-1, 2).T
    found = last_days(ids, days, 6).tolist()
    for key in range(6):
        seen = sorted({day for of, day in rows if of == key}, reverse=True)
        assert found[key] == [*seen, NEVER, NEVER][:2]
