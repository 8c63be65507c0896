"""`preprocess log --features`: the same from CSV and parquet, as a person reads the rules."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feature_logs import OPTIONS, feature_log, write_csv, write_features
from stored_samples import keys_of

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.channels import contract_named
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fitted_record import fitted_features
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def log():
    return feature_log()


@pytest.fixture(scope="module")
def files(log, tmp_path_factory):
    directory = tmp_path_factory.mktemp("features")
    write_csv(log, directory / "log.csv")
    log.to_parquet(directory / "log.parquet", row_group_size=300)
    write_features(directory / "features.yaml")
    return directory


@pytest.fixture(scope="module")
def run(preprocess_log, files):
    def run(output, *more, log="log.parquet", features="features.yaml"):
        given = () if "--fitted" in more else (*OPTIONS, "--features", files / features)
        return preprocess_log(files / output, files / log, *given, *more)[0]

    return run


@pytest.fixture(scope="module")
def dataset(run):
    return run("dataset")


@pytest.fixture(scope="module")
def labelled(run):
    return run("labelled", "--label_column", "clicked")


def test_csv_and_parquet_give_the_same_bytes(run, dataset):
    from_csv = run("of_csv", log="log.csv")
    for mapping in ("train", "test"):
        assert pq.read_table(from_csv / mapping).equals(pq.read_table(dataset / mapping))
    learned = [json.loads((d / "workflow.json").read_text()) for d in (from_csv, dataset)]
    assert fitted_features(learned[0]) == fitted_features(learned[1]) is not None


def test_the_dataset_fits_the_models_and_says_what_it_holds(dataset):
    opened = DatasetDirectory.open(dataset)
    for family in ("sim", "dien", "din"):
        contract_named(family).check(opened.spec)
    channels = opened.channels
    assert channels["user_features"] == ["who", "income"]
    assert channels["target_item_features"] == [
        "what_trgt", "brand_trgt", "weight_trgt", "size_trgt",
    ]  # fmt: skip
    assert channels["history_time_intervals"] == ["when_since_pos"]
    assert channels["target_item_lists"] == ["genres", "income_brand"]
    assert channels["user_numerical"][:3] == ["age", "place", "when_hour_sin"]
    assert channels["target_item_numerical"] == [
        "price_trgt", "released_month_sin_trgt", "released_month_cos_trgt", "look_trgt",
    ]  # fmt: skip


def test_each_sample_has_what_its_row_of_the_log_has(log, labelled):
    """With labels every sample is a row of the log: test has each user's last one."""
    rows = pq.read_table(labelled / "test").to_pandas()
    last = log.groupby("who").tail(1).set_index("who")
    items = log.drop_duplicates("what").set_index("what")
    trains = log[log["who"].duplicated(keep="last")]

    def logarithms(prices):
        filled = prices.fillna(trains["price"].median()).clip(lower=1)
        return np.log(filled.astype(np.float32) + 1)

    fitted = logarithms(trains["price"])
    price = (logarithms(items["price"]) - fitted.mean()) / fitted.std(ddof=1)
    names = {name: keys_of(labelled, name) for name in ("who", "what", "genres", "size", "income")}
    events = trains["age"].fillna(30)
    place = trains["place"]
    for row in rows.to_dict("records"):
        event = last.loc[names["who"][row["who"]]]
        item = items.loc[event["what"]]
        assert names["what"][row["what_trgt"]] == event["what"]
        assert row["label"] == event["clicked"]
        assert row["price_trgt"] == pytest.approx(price[event["what"]], abs=2e-3)
        age = 30 if np.isnan(event["age"]) else event["age"]
        assert row["age"] == pytest.approx((age - events.mean()) / events.std(ddof=1), abs=2e-3)
        assert row["place"] == pytest.approx(
            (event["place"] - place.min()) / (place.max() - place.min()), abs=1e-6
        )
        seen = log[log["who"] == names["who"][row["who"]]]["place"].to_numpy()
        for lag in (1, 3):
            scaled = (seen[-1 - lag] - place.min()) / (place.max() - place.min())
            assert row[f"place_lag_{lag}"] == pytest.approx(scaled, abs=1e-6)
        angle = event["when"].hour * 2 * np.pi / 24
        assert row["when_hour_sin"] == pytest.approx(np.sin(angle), abs=1e-6)
        angle = event["when"].weekday() * 2 * np.pi / 7
        assert row["when_weekday_cos"] == pytest.approx(np.cos(angle), abs=1e-6)
        angle = (item["released"].month - 1) * 2 * np.pi / 12
        assert row["released_month_sin_trgt"] == pytest.approx(np.sin(angle), abs=1e-6)
        assert [names["genres"][i] for i in row["genres"] if i] == list(item["genres"])
        look = np.zeros(4) if item["look"] is None else item["look"]
        look = look / max(np.linalg.norm(look), 1e-9)
        np.testing.assert_allclose(row["look_trgt"], look, atol=1e-6)
        assert names["size"][row["size_trgt"]] == str(item["size"])
        bucket = np.searchsorted([0.25, 0.5], event["income"], side="right")
        assert names["income"][row["income"]] == f"bucket {bucket}"
        of_user = log[log["who"] == names["who"][row["who"]]]
        taken = of_user[:-1][of_user[:-1]["clicked"] == 1]["when"][-12:]
        hours = (of_user["when"].iloc[-1] - taken).dt.total_seconds() / 3600
        np.testing.assert_allclose(row["when_since_pos"], hours, rtol=1e-6)


def test_a_lag_beyond_the_first_interaction_is_zero(log, run, files):
    few = pd.DataFrame(
        {"who": ["u"] * 5, "what": list("abcab"), "when": range(5), "place": [5.0, 2, 9, 4, 7]}
    )
    few.to_parquet(files / "few.parquet")
    write_features(
        files / "lags.yaml", "features: {place: {type: number, of: interaction, lags: [2]}}"
    )
    result = run("few", "--item_feature_columns", "", log="few.parquet", features="lags.yaml")
    rows = pq.read_table(result / "train").to_pandas()
    found = rows[rows["label"] == 1].set_index("place")["place_lag_2"].to_dict()
    assert found == {2: 0, 9: 5, 4: 2}
    assert pq.read_table(result / "test")["place_lag_2"].to_pylist() == [9, 9]


def test_a_negative_has_its_own_items_numbers_and_its_positives_time(dataset):
    items = pd.read_parquet(dataset / "categories" / "what.parquet").set_index("id")
    rows = pq.read_table(dataset / "test").to_pandas()
    assert set(rows["label"]) == {0, 1}
    expected = items.loc[rows["what_trgt"], "price"].to_numpy()
    np.testing.assert_array_equal(rows["price_trgt"], expected)
    moments = rows.groupby("who")[["place", "when_hour_sin", "age"]].nunique()
    assert (moments == 1).all(axis=None)
    lengths = rows["when_since_pos"].map(len)
    assert (lengths == rows["what_pos"].map(len)).all()


def test_the_fitted_workflow_does_the_same(log, dataset, labelled):
    for stored, mapping in ((dataset, "test"), (labelled, "train")):
        made = FittedWorkflow.load(stored).samples(log, mapping)
        assert rows_of(made) == rows_of(pq.read_table(stored / mapping).to_pandas())
    # Of one interaction of each user nothing is left to train with.
    first, fitted = log.groupby("who").head(1), FittedWorkflow.load(dataset)
    for mapping, of_user in (("train", 0), ("test", 2)):
        made = fitted.samples(first, mapping)
        assert list(made) == pq.read_table(dataset / mapping).column_names
        assert len(made) == of_user * len(first)
        assert all(len(ids) == 0 for ids in made["what_pos"])


def rows_of(frame):
    def plain(value):
        if np.ndim(value):
            return tuple(round(float(v), 4) for v in value)
        return round(float(value), 4)

    names = sorted(frame.columns)
    return sorted(tuple(plain(row[name]) for name in names) for row in frame.to_dict("records"))


def test_padding_fills_histories_alone(run, labelled):
    padded = run("padded", "--label_column", "clicked", "--pad")
    histories = {"when_since_pos"} | {
        f"{name}_{side}" for name in ("what", "brand", "weight", "size") for side in ("pos", "neg")
    }
    for mapping in ("train", "test"):
        ragged, full = (pq.read_table(d / mapping).to_pydict() for d in (labelled, padded))
        assert list(full) == list(ragged) and histories < set(full)
        for name, values in ragged.items():
            if name in histories:
                values = [[0] * (12 - len(ids)) + ids for ids in values]
            assert full[name] == values, name


def test_rows_of_a_frame_are_read_as_those_of_files(log, dataset):
    fitted = FittedWorkflow.load(dataset)
    text = log.head(3).assign(when=log["when"].astype(str), price=["1.5", "", "2"])
    rows = fitted.rows(text)
    assert rows["price"].fillna(-1).tolist() == [1.5, -1, 2]
    with pytest.raises(MerlinSimError, match="the log, row 2: 'place': expected a number"):
        fitted.rows(text.assign(place=["1", "far", "2"]))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("place", "near", "'place': expected a number (FillMissing or FillMedian fills"),
        ("place", "", "'place': expected a number (FillMissing or FillMedian fills"),
        ("price", "1e300", "'price': expected a number, found '1e300'"),
        ("look", "1|2|3", "'look': expected 4 numbers, as a list or between |, found '1|2|3'"),
        ("released", "in May", "'released': expected a date and time such as"),
    ],
)
def test_a_value_that_is_none_is_reported_with_its_row(column, value, reason, files, run):
    lines = (files / "log.csv").read_text().splitlines()
    cells = lines[3].split(",")
    cells[lines[0].split(",").index(column)] = value
    name = f"bad {column} {len(value)}.csv"
    (files / name).write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]))
    with pytest.raises(Exception) as error:
        run(f"bad {column}", log=name)
    assert f"{name}, line 4: {reason}" in str(error.value)


def test_files_of_other_types_of_numbers_are_one_log(log, run, files, dataset):
    parts = (
        log[:400],
        log[400:].assign(
            weight=log["weight"][400:].astype(np.float32), size=log["size"][400:].map(str)
        ),
    )
    for number, part in enumerate(parts):
        part.to_parquet(files / f"{number}.parquet")
    output = run("of parts", files / "1.parquet", "--layout", "users", log="0.parquet")
    stored, again = (pq.read_table(d / "categories/what.parquet") for d in (dataset, output))
    for name in ("key", "price", "size", "weight"):
        assert stored[name].equals(again[name])


def test_times_that_are_numbers_need_a_unit(log, run, files):
    days = log.assign(released=(log["released"] - pd.Timestamp("1970-01-01")).dt.days * 86_400_000)
    write_csv(days, files / "numbers.csv")
    feature = "{type: time, of: item, cycles: [month]"
    write_features(files / "no unit.yaml", f"features: {{released: {feature}}}}}")
    with pytest.raises(MerlinSimError, match="'released': expected .*`unit` says what numbers"):
        run("no unit", log="numbers.csv", features="no unit.yaml")
    write_features(files / "unit.yaml", f"features: {{released: {feature}, unit: ms}}}}")
    output = run("unit", "--layout", "users", log="numbers.csv", features="unit.yaml")
    found = pd.read_parquet(output / "categories" / "what.parquet").set_index("key")
    items = log.drop_duplicates("what").set_index("what")
    angle = (items["released"].dt.month - 1).loc[found.index] * 2 * np.pi / 12
    np.testing.assert_allclose(found["released_month_sin"], np.sin(angle), atol=1e-6)


def test_tfrecord_holds_all_of_it_and_gives_it_back(run_cli, dataset, files):
    for source, output, to in ((dataset, "tf", "tfrecord"), (files / "tf", "back", "parquet")):
        arguments = ("data", "transcode", "--input", source, "--output", files / output, "--to", to)
        result = run_cli(*arguments)
        if result.exception:
            raise result.exception
    stored, back = (pq.read_table(d / "test").to_pandas() for d in (dataset, files / "back"))
    for name in ("look_trgt", "genres", "income_brand"):
        np.testing.assert_array_equal(np.stack(stored[name]), np.stack(back[name]))
    for name in ("age", "price_trgt", "when_hour_sin"):
        np.testing.assert_array_equal(stored[name], back[name])


def test_a_vector_of_another_length_is_not_fed(dataset, tmp_path):
    copied = tmp_path / "dataset"
    shutil.copytree(dataset, copied)
    (path,) = (copied / "test").glob("*.parquet")
    table = pq.read_table(path)
    rows = table["look_trgt"].to_pylist()
    rows[7] = [0.5] * 3
    index = table.column_names.index("look_trgt")
    table = table.set_column(index, "look_trgt", pa.array(rows, pa.list_(pa.float32())))
    pq.write_table(table, path)
    opened = DatasetDirectory.open(copied)
    feed = open_loader(opened, "test", ["label", "look_trgt"], 16, Ranks())
    with pytest.raises(MerlinSimError, match="row 8: .*vectors of 4 numbers. Received: 3"):
        list(feed)
