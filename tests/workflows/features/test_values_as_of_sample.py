"""A sample has the features that were known at its own time, and nothing of what came later."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from feature_logs import write_features
from fed_samples import assert_same_samples
from stored_samples import keys_of

from merlin_sim.workflows.preprocess import preprocess_log

pytestmark = pytest.mark.slow

FEATURES = """
features:
  price: {type: number, of: item, operators: [{FillMissing: {fill_val: -1}}]}
  weight: {type: number, of: item, buckets: [4.5]}
  released: {type: time, of: item, cycles: [hour], unit: s}
  genres: {type: list, of: item, longest: 2}
  look: {type: vector, of: item, size: 2}
  age: {type: number, of: user, operators: [{FillMissing: {fill_val: -1}}]}
  income: {type: number, of: user, buckets: [2.5]}
"""
NAMES = ("who", "what", "when", "level", "age", "brand", "price", "released", "genres", "look")
HOUR = 3600.0
ROWS = [
    ("u1", "a", 10, "low", 1, "x", 1.0, 0.0, "g|h", "1|0"),
    ("u1", "b", 20, None, np.nan, "z", 5.0, HOUR, "h", "0|1"),
    ("u1", "c", 30, "high", 3, "w", 7.0, HOUR, "g", "0|1"),
    ("u1", "d", 45, None, np.nan, "v", 3.0, HOUR, "k", "0|1"),
    ("u2", "a", 15, None, np.nan, None, np.nan, np.nan, "", None),
    ("u2", "b", 25, "mid", 4, "z", 6.0, HOUR, "h", "0|1"),
    ("u2", "c", 30, "mid", 5, "w2", 8.0, 2 * HOUR, "h|g", "1|0"),
    ("u3", "a", 40, "top", 9, "y", 2.0, 3 * HOUR, "k", "0|1"),
    ("u3", "b", 12, "top", 9, None, np.nan, np.nan, "", None),
    ("u3", "c", 5, "top", 9, None, np.nan, np.nan, "", None),
]
BY_HAND = {
    # user, how many before: level, age, brand, price, released's sine, genres, look
    ("u1", 0): ("low", 1, "x", 1, 0, ["g", "h"], [1, 0]),
    ("u1", 1): ("low", 1, "z", 5, 1, ["h"], [0, 1]),
    ("u1", 2): ("high", 3, "w2", 8, 2, ["h", "g"], [1, 0]),
    ("u1", 3): ("high", 3, "v", 3, 1, ["k"], [0, 1]),
    ("u2", 0): ("no_level", -1, "x", 1, 0, ["g", "h"], [1, 0]),
    ("u2", 1): ("mid", 4, "z", 6, 1, ["h"], [0, 1]),
    ("u2", 2): ("mid", 5, "w2", 8, 2, ["h", "g"], [1, 0]),
    ("u3", 0): ("top", 9, "w2", 8, 2, ["h", "g"], [1, 0]),
    ("u3", 1): ("top", 9, "z", 5, 1, ["h"], [0, 1]),
    ("u3", 2): ("top", 9, "y", 2, 3, ["k"], [0, 1]),
}
BRANDS_OF_HISTORY = {("u1", 3): ["y", "z", "w2"], ("u3", 2): ["w2", "z"], ("u1", 2): ["x", "z"]}


def small_log() -> pd.DataFrame:
    log = pd.DataFrame(ROWS, columns=NAMES)
    return log.assign(weight=log["price"], income=log["age"])


@pytest.fixture(scope="module")
def run(preprocess_log, tmp_path_factory):
    directory = tmp_path_factory.mktemp("as_of_sample")
    small_log().to_parquet(directory / "log.parquet", row_group_size=3)
    write_features(directory / "features.yaml", FEATURES)

    def run(output, *more, files=("log.parquet",), features="features.yaml"):
        given = () if "--fitted" in more else (
            "--features", directory / features, "--user_feature_columns", "level",
            "--item_feature_columns", "brand", "--fit_on", "all",
        )  # fmt: skip
        path, run.output = preprocess_log(
            directory / output, *(directory / file for file in files), *given,
            "--shortest_sequence_for_user", 1, "--shortest_sequence_for_training", 0,
            "--order_of_equal_times", "log", "--validation", "none", *more,
        )  # fmt: skip
        return path

    run.directory = directory
    return run


@pytest.fixture(scope="module")
def plain(run):
    """The dataset of the log, whose users go to a bucket each, and what the command printed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(preprocess_log, "number_of_buckets", lambda size: 3)
        return run("dataset"), run.output


def rows_of(dataset):
    frames = [pq.read_table(dataset / mapping).to_pandas() for mapping in ("train", "test")]
    rows = pd.concat(frames, ignore_index=True)
    for name in ("who", "level", "income"):
        keys = keys_of(dataset, name)
        rows[name] = [keys[number] for number in rows[name]]
    for name in ("what", "brand", "weight"):
        keys = keys_of(dataset, name)
        rows[f"{name}_trgt"] = rows[f"{name}_trgt"].map(keys)
        for side in ("pos", "neg"):
            lists = rows[f"{name}_{side}"]
            rows[f"{name}_{side}"] = [[keys[i] for i in ids if i] for ids in lists]
    genres = keys_of(dataset, "genres")
    rows["genres"] = [[genres[i] for i in ids if i] for ids in rows["genres"]]
    rows["place"] = list(zip(rows["who"], map(len, rows["what_pos"]), strict=True))
    return rows


def test_each_sample_has_what_was_known_at_its_time(plain):
    rows = rows_of(plain[0])
    positives = rows[rows["label"] == 1].set_index("place")
    assert len(positives) == len(BY_HAND)
    for index, (level, age, brand, price, hour, genres, look) in BY_HAND.items():
        row = positives.loc[[index]].iloc[0]
        assert (row["level"], row["age"]) == (level, age), index
        bucket = "no_income" if age < 0 else f"bucket {int(age > 2.5)}"
        assert row["income"] == bucket, index
        assert (row["brand_trgt"], row["price_trgt"]) == (brand, price), index
        assert row["weight_trgt"] == f"bucket {int(price > 4.5)}", index
        angle = np.sin(hour * 2 * np.pi / 24)
        assert row["released_hour_sin_trgt"] == pytest.approx(angle, abs=1e-6), index
        assert row["genres"] == genres, index
        np.testing.assert_allclose(row["look_trgt"], look, atol=1e-6)
    for index, brands in BRANDS_OF_HISTORY.items():
        assert positives.loc[[index]].iloc[0]["brand_pos"] == brands, index


def brand_at(log, item, moment):
    known = log[(log["what"] == item) & log["brand"].notna()].sort_values("when", kind="stable")
    first = known["when"].iloc[0]  # before it what was known first
    return known[known["when"] <= max(moment, first)]["brand"].iloc[-1]


def test_drawn_items_have_what_was_known_at_the_time_of_their_sample(plain):
    rows, log = rows_of(plain[0]), small_log()
    times = log.sort_values("when").groupby("who")["when"].apply(list)
    checked = 0
    for row in rows.to_dict("records"):
        who, before = row["place"]
        moment = times[who][before]
        for item, brand in [
            (row["what_trgt"], row["brand_trgt"]),
            *zip(row["what_neg"], row["brand_neg"], strict=True),
            *zip(row["what_pos"], row["brand_pos"], strict=True),
        ]:
            assert brand == brand_at(log, item, moment)
            checked += 1
    assert checked > 40


TIED = [
    *(("u1", "a", 1, "z", 9.0), ("u2", "a", 1, "k", 3.0), ("u1", "a", 1, "b", 5.0)),
    *(("u1", "b", 5, "z", 9.0), ("u2", "b", 5, "a", np.nan)),
    *(("u2", "c", 7, "late", 2.0), ("u3", "c", 6, "early", 8.0), ("u3", "b", 4, "old", 1.0)),
]


def items_of(dataset):
    """Brand and price of each item, as a request gets them."""
    items, brands = pd.read_parquet(dataset / "categories/what.parquet"), keys_of(dataset, "brand")
    return {row["key"]: (brands[row["brand"]], row["price"]) for _, row in items.iterrows()}


def test_a_request_gets_the_last_known_value(run, plain, monkeypatch):
    """Of interactions of one time the last in the log, however users are dealt out."""
    assert items_of(plain[0]) == {"a": ("y", 2), "b": ("z", 6), "c": ("w2", 8), "d": ("v", 3)}
    log = pd.DataFrame(TIED, columns=["who", "what", "when", "brand", "price"])
    files = ["tied.parquet", "more.parquet"]
    for file, part in zip(files, (log[:2], log[2:]), strict=True):
        part.to_parquet(run.directory / file, row_group_size=1)
    # In several buckets users of one item stand apart.
    monkeypatch.setattr(preprocess_log, "number_of_buckets", lambda size: 3)
    filled = "{price: {type: number, of: item, operators: [{FillMissing: {fill_val: -1}}]}}"
    write_features(run.directory / "price.yaml", f"features: {filled}")
    options = ("--user_feature_columns", "", "--layout", "users")
    dataset = run("tied", *options, files=files, features="price.yaml")
    assert items_of(dataset) == {"a": ("b", 5), "b": ("a", 9), "c": ("late", 2)}


def test_nothing_of_a_row_that_tests_is_seen_in_training(run):
    log, changed = small_log(), small_log()
    late = changed["when"] >= 30
    changed.loc[late, ["level", "age", "brand", "price"]] = ["new", 77, "new", 77.0]
    changed.to_parquet(run.directory / "changed.parquet")
    rows = rows_of(run("split", "--test_from", "30", files=("changed.parquet",)))
    positives = rows[rows["label"] == 1].set_index("place")
    for index in [("u1", 0), ("u1", 1), ("u2", 0), ("u2", 1)]:
        row = positives.loc[[index]].iloc[0]
        names = ["level", "age", "brand_trgt", "price_trgt"]
        assert tuple(row[names]) == BY_HAND[index][:4], index
    for row in rows[rows["label"] == 0].to_dict("records"):
        who, before = row["place"]
        moment = sorted(log[log["who"] == who]["when"])[before]
        if moment < 30 and row["what_trgt"] in "ab":
            assert row["brand_trgt"] == brand_at(log, row["what_trgt"], moment)


def test_latest_gives_the_last_known_value_to_all_and_says_how_many_leak(run, plain):
    latest = run("latest", "--feature_values", "latest")
    rows = rows_of(latest)
    positives = rows[rows["label"] == 1].set_index("place")
    assert positives.loc[[("u1", 0)]].iloc[0]["level"] == "high"
    assert positives.loc[[("u1", 0)]].iloc[0]["age"] == 3
    assert positives.loc[[("u2", 0)]].iloc[0]["brand_trgt"] == "y"
    assert list(positives.loc[[("u1", 2)]].iloc[0]["brand_pos"]) == ["y", "z"]
    # Of 7 that train: u1's first two (low), u2's first two (mid, 4 and before), u3's b (price).
    assert "5 of 7 interactions that train" in run.output
    assert "interactions that train" not in plain[1]
    dataset = run("users", "--layout", "users", "--feature_values", "latest")
    assert assert_same_samples(dataset, latest) == 2 * len(ROWS)
    users = pq.read_table(dataset / "users").to_pandas()
    levels = keys_of(dataset, "level")
    assert sorted(levels[level] for level in users["level"]) == ["high", "mid", "top"]
    assert sorted(users["age"]) == [3, 5, 9]


def test_the_latest_values_of_items_are_of_the_rows_that_are_fitted_on(run):
    steady = {"level": "low", "age": 1.0, "price": 1.0, "released": 0.0, "genres": "g"}
    log = small_log().assign(**steady, look="0|1", weight=1.0, income=1.0)
    log["brand"] = np.where(log["when"] < 30, "old", "new")
    log.to_parquet(run.directory / "brands.parquet")
    options = ("--feature_values", "latest", "--fit_on", "train", "--test_from", "30")
    options += ("--layout", "users")
    dataset = run("fitted on train", *options, files=("brands.parquet",))
    items = pd.read_parquet(dataset / "categories/what.parquet").set_index("key")["brand"]
    assert keys_of(dataset, "brand")[items["a"]] == "old"
    # With all rows it would be 3: a's at 10 and 15, and c's at 5, have a brand that came later.
    assert "0 of 6 interactions that train" in run.output


def test_whole_histories_are_counted_with_the_values_of_their_own_times(run):
    """A sample's own value is compared with what the user's interactions had then."""
    brands = ["A", "A", "A", "C", "A", "B", "C"]  # of items y y x z y x z: x becomes B
    rows = [
        (who, what, index * 10 + number, brand)
        for number, who in enumerate(["u1", "u2", "u3"])
        for index, (what, brand) in enumerate(zip("yyxzyxz", brands, strict=True))
    ]
    log = pd.DataFrame(rows, columns=["who", "what", "when", "brand"])
    log.to_parquet(run.directory / "rebranded.parquet")
    write_features(run.directory / "counts.yaml", "lifetime_counts: [what, brand]\n")
    options = ("--user_feature_columns", "", "--layout")
    stored, users = (
        run(f"counts {layout}", *options, layout, files=("rebranded.parquet",),
            features="counts.yaml")
        for layout in ("samples", "users")
    )  # fmt: skip
    assert assert_same_samples(users, stored) == 2 * len(log)
    keys, found = keys_of(stored, "brand"), {0: {}, 1: {}}
    for mapping in ("train", "test"):
        for row in pq.read_table(stored / mapping).to_pandas().itertuples():
            before = brands[: len(row.what_pos)]
            counted = round(np.expm1(row.brand_lifetime_count_trgt))
            assert counted == before.count(keys[row.brand_trgt])
            found[row.label][len(before)] = counted
    assert found[1] == {0: 0, 1: 1, 2: 2, 3: 0, 4: 3, 5: 0, 6: 1}


def test_the_next_day_goes_on_from_the_last_known_value(run):
    """Interactions that were only shown bring values too: the next day knows them."""
    rows = [
        ("u1", "a", 1, "low", 1.0, 1), ("u1", "b", 2, "high", 2.0, 0),
        ("u2", "a", 1, "low", 1.0, 1), ("u2", "b", 2, "low", 1.0, 1),
        ("u3", "b", 1, "low", 1.0, 1), ("u3", "a", 2, "low", 1.0, 1),
    ]  # fmt: skip
    names = ["who", "what", "when", "level", "age", "clicked"]
    pd.DataFrame(rows, columns=names).to_parquet(run.directory / "day1.parquet")
    following = [("u1", "a", 5, None, np.nan, 1), ("u1", "b", 6, "top", 3.0, 1)]
    pd.DataFrame(following, columns=names).to_parquet(run.directory / "day2.parquet")
    filled = "{age: {type: number, of: user, operators: [{FillMissing: {fill_val: -1}}]}}"
    write_features(run.directory / "age.yaml", f"features: {filled}")
    given = ("--label_column", "clicked", "--item_feature_columns", "")
    day1 = run("day1", *given, files=("day1.parquet",), features="age.yaml")
    goes_on = ("--fitted", day1, "--grow", "--history", day1)
    day2 = run("day2", *goes_on, files=("day2.parquet",))
    levels = keys_of(day2, "level")
    frames = [pq.read_table(day2 / mapping).to_pandas() for mapping in ("train", "test")]
    found = pd.concat(frames).sort_values("what_trgt")
    assert [levels[level] for level in found["level"]] == ["high", "top"]
    assert found["age"].tolist() == [2.0, 3.0]
