"""Vocabularies that grow: known keys keep their ids, new ones come behind them."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import yaml
from stored_samples import samples_of

from merlin_sim.foundation.digest import DIGEST
from merlin_sim.schemas.fitted_record import number_records
from merlin_sim.workflows.ops.saving import read_workflow_document
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow

FEATURES = {
    "features": {
        "price": {"type": "number", "of": "item", "operators": ["Normalize"]},
        "weight": {"type": "number", "of": "item", "buckets": [2.0, 4.0]},
        "genres": {"type": "list", "of": "item", "longest": 3},
        "look": {"type": "vector", "of": "item", "size": 2},
    },
    "crosses": {"land_brand": {"columns": ["land", "brand"], "buckets": 50}},
}
DOMAINS = ("who", "what", "land", "brand", "weight", "genres")


def some_log(seed, users, items, start, rows=400) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    who, what = random.integers(*users, rows), random.integers(*items, rows)
    return pd.DataFrame(
        {
            "who": [f"u{n:03d}" for n in who],
            "what": [f"i{n:03d}" for n in what],
            "when": start + random.integers(0, 50, rows),
            "land": [f"l{n % 7 + n // 20}" for n in who],
            "brand": [f"b{(n * 5) % 8 + n // 20:02d}" for n in what],
            "price": what / 2,
            "weight": (what % 6).astype(float),
            "genres": [[f"g{n % 3}", f"g{n // 10}"] for n in what],
            "look": [[1.0, float(n)] for n in what],
        }
    )


def old_log() -> pd.DataFrame:
    """Weights below 2 alone, so that two of the buckets are not known.

    Some users are too short, and they alone have an item that never comes again.
    """
    short = some_log(3, (50, 60), (60, 61), 0, rows=12).groupby("who").head(2)
    return pd.concat([some_log(0, (10, 40), (10, 35), 0).query("weight < 2"), short])


def new_log() -> pd.DataFrame:
    """Some new keys come before the old ones in their order, some after."""
    return some_log(1, (0, 60), (0, 50), 50)


def third_log() -> pd.DataFrame:
    """Of the day after, of some of the users."""
    return some_log(2, (0, 30), (0, 55), 100).sort_values("when", kind="stable")


def vocabulary(dataset, name) -> pd.DataFrame:
    return pd.read_parquet(dataset / f"categories/{name}.parquet")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("grown")
    old_log().to_parquet(directory / "old.parquet")
    new_log().to_parquet(directory / "new.parquet")
    third_log().to_parquet(directory / "third.parquet")
    (directory / "features.yaml").write_text(yaml.safe_dump(FEATURES))
    return directory


@pytest.fixture(scope="module")
def log_options():
    return (
        "--scheduler", "single", "--shortest_sequence_for_user", 3, "--max_sequence_length", 5,
        "--user_feature_columns", "land", "--item_feature_columns", "brand",
        "--order_of_equal_times", "log", "--validation", "none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def old(make, files):
    return make("old", "--features", files / "features.yaml", log="old.parquet")[0]


@pytest.fixture(scope="module")
def grown(make, old):
    """The dataset of the new log, and what the command printed."""
    return make("grown", "--fitted", old, "--grow", log="new.parquet")


def last_samples(log, known=None) -> Counter:
    """What each user of a log did last of what is known, where it is of the new log."""
    expected = Counter()
    for user, rows in log.sort_values("when", kind="stable").groupby("who"):
        items = [item for item in rows["what"] if known is None or item in known]
        if len(rows) >= 3 and rows["when"].iloc[-1] >= 50:
            expected[user, items[-1], 1, tuple(items[-6:-1])] += 1
    return expected


def test_known_keys_keep_their_ids_and_new_ones_follow_in_their_order(old, grown):
    new, output = grown
    log = new_log()
    kept = log[log.groupby("who")["what"].transform("size") >= 3]
    assert 0 < len(kept)
    seen = {
        "who": set(kept["who"]),
        "what": set(kept["what"]),
        "land": set(kept["land"]),
        "brand": set(kept["brand"]),
        "genres": {genre for genres in kept["genres"] for genre in genres},
    }
    reported = []
    for name in DOMAINS:
        before, after = vocabulary(old, name), vocabulary(new, name)
        assert after["id"].tolist() == list(range(1, len(after) + 1))
        assert after["key"][: len(before)].tolist() == before["key"].tolist()
        more = after["key"][len(before) :].tolist()
        # An item and its features have ids in the order of a hash, the others in that of the keys.
        assert more == sorted(more) or name in ("what", "brand", "weight")
        assert name != "what" or more != sorted(more)
        assert more, name
        if name in seen:
            assert set(more) == seen[name] - set(before["key"])
        reported.append(f"{name} {len(after)} ({len(more)} of them new)")
    assert all(entry in output for entry in reported)
    first = vocabulary(old, "who")["key"].iloc[0]
    assert (vocabulary(new, "who")["key"] < first).any()  # behind it all the same


def test_items_have_what_is_known_of_them(old, grown):
    """An item has what the newest log that has it says."""
    new, _ = grown
    table = vocabulary(new, "what")
    brands, weights, genres = (
        vocabulary(new, name).set_index("id")["key"] for name in ("brand", "weight", "genres")
    )
    before = vocabulary(old, "what")
    assert len(before) < len(table)
    for row in table.itertuples():
        n = int(row.key[1:])
        assert brands[row.brand] == f"b{(n * 5) % 8 + n // 20:02d}"
        assert weights[row.weight] == weights[table.set_index("key")["weight"][row.key]]
        assert [genres[g] for g in row.genres] == [f"g{n % 3}", f"g{n // 10}"]
        np.testing.assert_allclose(row.look, np.array([1, n]) / np.hypot(1, n), rtol=1e-6)
    # Numbers keep the mean and the spread that they were fitted with.
    learned = [
        number_records(read_workflow_document(directory))["price"] for directory in (old, new)
    ]
    assert learned[0] == learned[1]
    numbers = table["price"].to_numpy()
    np.testing.assert_allclose(numbers[: len(before)], before["price"], rtol=1e-6)
    n = table["key"].str[1:].astype(int).to_numpy()
    slope = np.diff(before["price"])[0] / np.diff(n[: len(before)])[0]
    np.testing.assert_allclose(numbers - numbers[0], slope * (n - n[0]), atol=1e-4)


def test_known_items_take_the_prices_of_the_new_log_in_samples_and_in_the_table(make, files):
    """Then a has another price from its first row on, b from a later one on; c costs the same.

    Of d only rows that test say another price, which are not fitted: it keeps its own.
    """

    def priced(items, prices, start):
        rows = [
            (who, what, start + index * 10 + number, prices[what][index > 2])
            for number, who in enumerate(["u1", "u2", "u3"])
            for index, what in enumerate(items)
        ]
        log = pd.DataFrame(rows, columns=["who", "what", "when", "price"])
        return log.assign(land="l", brand="b")

    before = dict.fromkeys("abcd", (10, 10))
    then = {**before, "a": (12, 12), "b": (13, 14)}
    priced("dabcabc", before, 0).to_parquet(files / "prices before.parquet")
    log = priced("abcabcd", then, 100)
    log.loc[log["what"] == "d", "price"] = [20, 21, 22]
    log.to_parquet(files / "prices then.parquet")
    (files / "price.yaml").write_text("features: {price: {type: number, of: item}}")
    priced_options = ("--features", files / "price.yaml")
    old, _ = make("prices before", *priced_options, log="prices before.parquet")
    new, _ = make("prices then", "--fitted", old, "--grow", log="prices then.parquet")
    table = vocabulary(new, "what")
    assert dict(zip(table["key"], table["price"], strict=True)) == {
        what: prices[1] for what, prices in then.items()
    }
    keys = dict(zip(table["id"], table["key"], strict=True))
    rows = pd.concat(pd.read_parquet(new / mapping) for mapping in ("train", "test"))
    assert len(rows) == 2 * 3 * 6
    for row in rows.itertuples():
        index = len(row.what_pos)  # the second price of b is that of row 4
        assert row.price_trgt == then[keys[row.what_trgt]][index > 3]


def test_samples_are_those_of_the_new_log_and_the_dataset_says_what_it_grew_from(old, grown):
    new, output = grown
    assert samples_of(new, "test", label=1) == last_samples(new_log())
    assert "left out: 0 interactions with 0 items that have no id; 0 of the users" in output
    document = json.loads((new / "workflow.json").read_text())
    before = json.loads((old / "workflow.json").read_text())
    sizes = {name: len(vocabulary(old, name)) for name in DOMAINS}
    assert document["grown_from"] == {"fingerprint": before[DIGEST], "sizes": sizes}
    assert before["grown_from"] is None
    fitted = FittedWorkflow.load(new)
    assert fitted.sizes == {name: len(vocabulary(new, name)) for name in DOMAINS}
    log = new_log()
    frame = log[log.groupby("who")["what"].transform("size") >= 3]
    assert len(fitted.samples(frame, "test")) == len(pd.read_parquet(new / "test"))


def test_growing_by_nothing_changes_no_id(make, old):
    same, _ = make("same", "--fitted", old, "--grow", log="old.parquet")
    for name in DOMAINS:
        before, after = vocabulary(old, name), vocabulary(same, name)
        if name == "what":
            assert (after["count"] == 2 * before["count"]).all()
            before, after = (table.drop(columns=["count"]) for table in (before, after))
        pd.testing.assert_frame_equal(before, after)


@pytest.fixture(scope="module")
def gone_on(make, old):
    """The dataset of the new log that also goes on from the old histories, and what was printed."""
    options = ("--fitted", old, "--history", old, "--grow", "--max_sequence_length", 5)
    return make("on", *options, log="new.parquet")


def test_histories_go_on_while_ids_grow(gone_on):
    """A user who was too short then is new now, with what was done then before it."""
    dataset, output = gone_on
    items = set(vocabulary(dataset, "what")["key"])
    expected = last_samples(pd.concat([old_log(), new_log()]), known=items)
    then = old_log()
    then = then[then["who"].isin({user for user, *_ in expected}) & ~then["what"].isin(items)]
    assert f"and {len(then)} earlier interactions with such" in output
    assert samples_of(dataset, "test", label=1) == expected


def test_what_was_held_out_or_too_short_is_fitted_on_the_next_day(make, old, gone_on):
    """As one run over both logs would: each user's last row alone is not counted."""
    then, now = old_log(), new_log()
    log = pd.concat([then, now]).sort_values("when", kind="stable")
    rows = log.groupby("who")["what"].transform("size")
    trains = log[(rows >= 3) & log["who"].duplicated(keep="last")]
    short = then[then.groupby("who")["what"].transform("size") < 3]
    assert short["who"].isin(trains["who"]).any()
    only_then = {*trains["what"]} - {*vocabulary(old, "what")["key"]} - {*now["what"]}
    assert only_then
    table = vocabulary(gone_on[0], "what")
    assert dict(zip(table["key"], table["count"], strict=True)) == Counter(trains["what"])
    brands = vocabulary(gone_on[0], "brand").set_index("id")["key"]
    wanted = log.drop_duplicates("what").set_index("what")["brand"]
    assert brands[table["brand"]].tolist() == wanted[table["key"]].tolist()
    options = ("--fitted", gone_on[0], "--history", gone_on[0], "--grow")
    third = vocabulary(make("third", *options, log="third.parquet")[0], "what")
    log = pd.concat([log, third_log()])
    rows = log.groupby("who")["what"].transform("size")
    trains = log[(rows >= 3) & log["who"].duplicated(keep="last")]
    assert dict(zip(third["key"], third["count"], strict=True)) == Counter(trains["what"])


def test_what_cannot_grow_is_refused(make, refuse, files):
    assert "--grow needs --fitted" in refuse("--grow", log="new.parquet")
    (files / "counts.yaml").write_text("encodings: {what: [count]}\n")
    counts = ("--features", files / "counts.yaml", "--layout", "users")
    counted, _ = make("counted", *counts, log="old.parquet")
    said = refuse("--fitted", counted, "--grow", log="new.parquet")
    assert "`encodings` are counts of the log that was fitted on" in said


def test_amazons_categories_grow_from_the_metadata(tmp_path, raw_writer, preprocess):
    old = [("u", "bcb"[n % 3], n) for n in range(4)]
    new = [("a", "a", 5), ("a", "d", 6), ("a", "c", 7), ("u", "a", 8), ("u", "d", 9)]
    metadata = [("a", [["A"]]), ("b", [["B"]]), ("c", [["C"]]), ("d", [["B"]])]
    options = ("--shortest_sequence_for_user", 2)
    first = preprocess(raw_writer(tmp_path / "old", old, metadata), tmp_path / "first", *options)
    later = preprocess(
        raw_writer(tmp_path / "new", new, metadata), tmp_path / "later", "--fitted", first, "--grow"
    )
    assert vocabulary(later, "user_id")["key"].tolist() == ["u", "a"]
    items = vocabulary(later, "item_id")
    assert items["key"].tolist() == ["b", "c", "a", "d"]
    assert items["count"].tolist() == [3, 1 + 1, 2, 2]
    assert vocabulary(later, "cat_id")["key"].tolist() == ["B", "C", "A"]
    assert items["cat_id"].tolist() == [1, 2, 3, 1]
