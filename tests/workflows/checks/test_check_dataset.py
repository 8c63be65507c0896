"""Each check finds what was put into a dataset, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import small_users
from merlin.schema import ColumnSchema, Schema, Tags
from ranking_rows import write_ranking_dataset

from merlin_sim.dataloader.arrow_columns import Column
from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.schemas.merlin_schema import to_feature_spec
from merlin_sim.schemas.schema_file import write_schema
from merlin_sim.workflows.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.checks import check_dataset
from merlin_sim.workflows.checks.checked_rows import CheckedRows, FileRows, SampleHashes
from merlin_sim.workflows.checks.feature_counts import SomeRows
from merlin_sim.workflows.checks.made_rows import MadeRows
from merlin_sim.workflows.dataset_spec import samples_schema

COLUMNS = BehaviourColumns("user", "item", "time", ("country",))
SIZES = {"user": 40, "country": 3, "item": 50}


def some_rows(count, seed) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    lists = [random.integers(1, 51, random.integers(1, 9)) for _ in range(count)]
    return pd.DataFrame(
        {
            "label": random.integers(0, 2, count).astype("int8"),
            "user": random.integers(1, 41, count),
            "country": random.integers(1, 4, count),
            "item_trgt": random.integers(1, 51, count),
            "item_pos": lists,
            "item_neg": [ids[::-1] for ids in lists],
        }
    )


@pytest.fixture
def write(tmp_path):
    def write(train, test):
        for mapping, frame in (("train", train), ("test", test)):
            (tmp_path / mapping).mkdir(exist_ok=True)
            half = len(frame) // 2
            frame[:half].to_parquet(tmp_path / mapping / "part.0.parquet", row_group_size=100)
            frame[half:].to_parquet(tmp_path / mapping / "part.1.parquet")
        files = {m: tuple(f"{m}/part.{n}.parquet" for n in (0, 1)) for m in ("train", "test")}
        sources = {m: (Chunk("parquet", COLUMNS.output, names),) for m, names in files.items()}
        spec = to_feature_spec(samples_schema(COLUMNS, SIZES, 8))
        write_documents(tmp_path, replace(spec, source_spec=sources))
        return tmp_path

    return write


@pytest.fixture
def check(run_cli):
    def check(directory, *options):
        result = run_cli("data", "check", "--dataset_dir", directory, "--json", *options)
        assert result.exit_code in (0, 1), result.exception
        document = json.loads(result.stdout)
        problems = {(f["check"], f["where"]) for f in document["findings"] if f["problem"]}
        assert document["problems"] == len(problems)
        assert result.exit_code == bool(problems)
        return problems, {(f["check"], f["where"]): f["value"] for f in document["findings"]}

    return check


TRAIN, TEST = some_rows(1000, 1), some_rows(300, 2)


def test_a_sound_dataset_has_no_problem(write, check):
    problems, values = check(write(TRAIN, TEST))
    assert not problems
    assert values["rows of label 1", "train"] == TRAIN["label"].mean()
    assert values["repeated rows", "train"] == 0
    assert values["AUC of it alone", "item_trgt"] == pytest.approx(0.5, abs=0.1)
    assert values["positives per user", "test"] == pytest.approx(
        TEST["label"].sum() / TEST["user"].nunique()
    )


@pytest.mark.parametrize("last", [6, 50])
def test_an_id_beyond_its_table_is_named_with_its_row(write, tmp_path, last):
    """Ids of a click log end one before the cardinality, those of a behaviour log at it."""
    if last == 6:
        directory = write_ranking_dataset(tmp_path, rows=200)
        file, column = directory / "train.parquet", "category_0"
    else:
        directory = write(TRAIN, TEST)
        file, column = directory / "train" / "part.0.parquet", "item_trgt"
    frame = pd.read_parquet(file)
    for found in (last, last + 1):
        frame.loc[150, column] = found
        frame.to_parquet(file)
        dataset = DatasetDirectory.open(directory)
        rows = FileRows(dataset, "train")
        if found == last:
            assert sum(len(some.labels) for part in rows.parts for some in rows.read(part))
        else:
            message = f"row 151: column {column} holds an id outside 0 to {last}. Received: {found}"
            with pytest.raises(MerlinSimError, match=message):
                list(rows.read(next(iter(rows.parts))))


def padded_again(frame):
    """The first rows once more, with padding in their histories and other negatives."""
    again = frame[:90].assign(
        item_pos=[np.r_[np.zeros(8 - len(ids), int), ids] for ids in frame["item_pos"][:90]],
        item_neg=[np.array([7])] * 90,
    )
    return pd.concat([frame, again])


def cut_by_label(frame):
    """Short histories where the label is 1, long ones where it is 0."""
    histories = [
        ids[:3] if label else np.r_[ids, ids, ids][:8]
        for ids, label in zip(frame["item_pos"], frame["label"], strict=True)
    ]
    return frame.assign(item_pos=histories)[frame["item_pos"].map(len) > 2]


GIVEN_AWAY = [frame.assign(country=1 + frame["label"]) for frame in (TRAIN, TEST)]
FEW_ITEMS = TRAIN.assign(item_trgt=TRAIN["item_trgt"] // 2 + 1)
REPEATED, OF_ITEMS = ("repeated rows", "train"), ("ids that never train", "item_trgt")
EMPTY = [np.array([], np.int64)] * 1000
FAULTY = {
    "repeated rows": (pd.concat([TRAIN, TRAIN[:90]]), TEST, {REPEATED: 90 / 1090}),
    "repeated rows with padding": (padded_again(TRAIN), TEST, {REPEATED: 90 / 1090}),
    "rows that train": (
        TRAIN, pd.concat([TEST, TRAIN[:30]]), {("rows that train too", "test"): 30 / 330},
    ),
    "a feature that gives the label away": (*GIVEN_AWAY, {("AUC of it alone", "country"): 1}),
    "a length that gives it away": (
        *map(cut_by_label, (TRAIN, TEST)), {("AUC of it alone", "length of item_pos"): None},
    ),
    "ids that never train": (
        FEW_ITEMS, TEST, {OF_ITEMS: (~TEST["item_trgt"].isin(FEW_ITEMS["item_trgt"])).mean()},
    ),
    "many new users": (
        TRAIN[TRAIN["user"] <= 30], TEST, {("ids that never train", "user"): None},
    ),
    "constant columns, labels and histories": (
        TRAIN.assign(country=2, label=np.int8(1), item_pos=EMPTY),
        TEST,
        {
            REPEATED: None,
            ("constant column", "country"): None,
            ("rows of label 1", "train"): 1,
            ("users without history", "train"): None,
            ("ids that never train", "country"): None,
        },
    ),
}  # fmt: skip
"""What is wrong -> the rows, and the problems with what is reported of them."""


@pytest.mark.parametrize(("train", "test", "wanted"), FAULTY.values(), ids=FAULTY)
def test_a_problem_is_found_and_nothing_else(write, check, train, test, wanted):
    problems, values = check(write(train, test))
    assert problems == set(wanted)
    for found, value in wanted.items():
        assert value is None or values[found] == pytest.approx(value)


def test_what_is_no_problem(write, check):
    """Users who never train, where the split is by users; what the caller allows."""
    problems, values = check(write(TRAIN[TRAIN["user"] <= 30], TEST[TEST["user"] > 30]))
    assert not problems
    assert values["ids that never train", "user"] == 1
    assert not check(write(*GIVEN_AWAY), "--largest_auc", 1)[0]


@pytest.mark.parametrize("column", ["label", "user", "item_pos"])
def test_rows_that_differ_in_one_column_are_not_the_same(write, check, column):
    other = TRAIN[:90].copy()
    if column == "label":
        other[column] = 1 - other[column]
    elif column == "item_pos":
        other[column] = [np.append(ids[1:], ids[0] % 50 + 1) for ids in other[column]]
    else:
        other[column] = other[column] % SIZES[column.removesuffix("_trgt")] + 1
    both = pd.concat([TRAIN, other])
    plain = both.assign(item_pos=both["item_pos"].map(tuple)).drop(columns="item_neg")
    expected = plain.duplicated().mean()
    assert expected < 0.002  # chance
    assert check(write(both, TEST))[1]["repeated rows", "train"] == expected


@pytest.mark.parametrize("label", [-1, 0.5])
def test_labels_that_are_none_are_refused_whatever_their_tags(label, tmp_path, run_cli):
    """Of a schema of Merlin's alone, whose label is a target of no kind."""
    labels = np.array([0, 1, 1, label], np.float32 if label == 0.5 else np.int64)
    for mapping, kinds in (("train", [1, 2, 3, 4]), ("test", [4, 3, 2, 1])):
        (tmp_path / mapping).mkdir()
        rows = pd.DataFrame({"label": labels, "kind": kinds})
        rows.to_parquet(tmp_path / mapping / "part.0.parquet")
    domain = {"min": 0, "max": 4, "name": "kind"}
    columns = [
        ColumnSchema("label", tags=[Tags.TARGET], dtype=str(labels.dtype)),
        ColumnSchema("kind", tags=[Tags.CATEGORICAL], dtype="int64", properties={"domain": domain}),
    ]
    write_schema(Schema(columns), tmp_path / "schema.pbtxt")
    said = "part.0.parquet, row 4: column label holds a label other than 0 and 1. Received: "
    assert f"{said}{label}" in str(run_cli("data", "check", "--dataset_dir", tmp_path).exception)


def test_the_table_shows_what_was_found(write, run_cli):
    result = run_cli("data", "check", "--dataset_dir", write(TRAIN.assign(country=2), TEST))
    assert "2 problems" in result.output
    (line,) = [line for line in result.output.splitlines() if "constant" in line]
    assert line.startswith("!")
    assert run_cli("data", "check", "--dataset_dir", write(TRAIN, TEST)).output.endswith(
        "nothing found\n"
    )


@pytest.fixture
def write_clicks(tmp_path):
    """Write click logs whose numbers ``price_of`` makes of labels, of one row group after another.

    It gets the number of a row group, too.
    """

    def write(price_of):
        random = np.random.default_rng(0)
        kinds = {"label": "int8", "ad": "int32", "price": "float32"}
        features = {
            name: Feature(dtype, 20 if name == "ad" else None) for name, dtype in kinds.items()
        }
        for mapping in ("train", "test"):
            (tmp_path / mapping).mkdir(exist_ok=True)
            label = random.integers(0, 2, 2000)
            price = [price_of(random, some, n) for n, some in enumerate(np.split(label, 2))]
            columns = {"label": label, "ad": random.integers(0, 20, 2000)}
            columns["price"] = np.concatenate(price)
            table = pa.table({name: columns[name].astype(kinds[name]) for name in kinds})
            pq.write_table(table, tmp_path / mapping / "part.0.parquet", row_group_size=1000)
        chunks = {
            m: (Chunk("parquet", tuple(features), (f"{m}/part.0.parquet",)),)
            for m in ("train", "test")
        }
        channels = {"label": ("label",), "categorical": ("ad",), "numerical": ("price",)}
        write_documents(tmp_path, FeatureSpec(features, chunks, channels))
        return tmp_path

    return write


@pytest.mark.parametrize("flat", [0, 1])
def test_numbers_are_counted_alike_wherever_they_are_unlike_the_others(write_clicks, check, flat):
    """In one row group, first or last, all are equal; in the other they give the label away."""

    def price_of(random, label, group):
        return np.zeros(1000) if group == flat else 1 + label + random.normal(0, 0.1, 1000)

    _, values = check(write_clicks(price_of))
    assert values["AUC of it alone", "price"] == pytest.approx(0.875, abs=0.01)


@pytest.mark.parametrize("others", [0.5, "varied"])
def test_a_column_with_a_nan_is_not_constant(write_clicks, check, others):
    def price_of(random, label, group):
        price = random.normal(size=1000) if others == "varied" else np.full(1000, others)
        return np.r_[np.nan, price[1:]]

    constant = ("constant column", "price")
    assert constant not in check(write_clicks(price_of))[0]
    assert constant in check(write_clicks(lambda *_: np.full(1000, 0.5)))[0]


def test_of_very_many_numbers_a_share_is_of_all_rows():
    kept = SomeRows(most=1000)
    for part in np.split(np.arange(60_000), 15):
        kept.add(part, part % 2)
    assert 400 < len(kept.values) <= 1000
    np.testing.assert_array_equal(kept.values % 2, kept.labels)
    assert kept.values.mean() == pytest.approx(30_000, rel=0.1)


def test_click_logs_are_checked_alike(write_clicks, check):
    def price_of(random, label, group):
        return random.normal(size=1000) * np.where(label, 0.01, 1)  # not monotone

    problems, values = check(write_clicks(price_of))
    assert problems == {("AUC of it alone", "price")}
    assert ("users without history", "train") not in values


@pytest.fixture
def write_lists(tmp_path):
    """Write rows of 5 items; functions make vectors and lists of tags of labels."""

    def write(vector_of, tags_of):
        random = np.random.default_rng(0)
        features = {
            "label": Feature("int8"),
            "item": Feature("int64", 5),
            "item_pos": Feature("int64", 5, (3,)),
            "taste": Feature("float32", None, (2,)),
            "tags": Feature("int64", 12, (2,)),
        }
        for mapping, rows in (("train", 1000), ("test", 400)):
            label = random.integers(0, 2, rows)
            vectors = np.stack([random.normal(size=rows), vector_of(random, label)], axis=1)
            table = {
                "label": label.astype("int8"),
                "item": random.integers(1, 6, rows),
                "item_pos": [[int(item)] for item in random.integers(1, 6, rows)],
                "taste": pa.FixedSizeListArray.from_arrays(vectors.astype("float32").ravel(), 2),
                "tags": [[int(tag), 9] for tag in tags_of(random, label)],
            }
            pq.write_table(pa.table(table), tmp_path / f"{mapping}.parquet")
        chunks = {
            m: (Chunk("parquet", tuple(features), (f"{m}.parquet",)),) for m in ("train", "test")
        }
        channels = {
            "label": ("label",),
            "target_item_features": ("item",),
            "positive_history": ("item_pos",),
            "user_numerical": ("taste",),
            "target_item_lists": ("tags",),
        }
        write_documents(tmp_path, FeatureSpec(features, chunks, channels))
        return tmp_path

    return write


def any_number(random, label):
    return random.normal(size=len(label))


def any_tag(random, label):
    return random.integers(1, 9, len(label))


@pytest.mark.parametrize(
    ("vector_of", "tags_of", "wanted"),
    [
        (any_number, any_tag, set()),
        (lambda random, label: label, any_tag, {("AUC of it alone", "taste[1]")}),
        (any_number, lambda random, label: 1 + label, {("AUC of it alone", "tags")}),
    ],
)
def test_vectors_and_lists_tell_rows_apart_and_give_labels_away(
    write_lists, check, vector_of, tags_of, wanted
):
    """The rows are alike but for them: there are 50 others."""
    assert check(write_lists(vector_of, tags_of))[0] == wanted


def test_rows_whose_tags_alone_differ_are_not_the_same(write_lists, check):
    directory = write_lists(any_number, any_tag)
    for file in (path := directory / "train.parquet"), directory / "test.parquet":
        table = pq.read_table(file)
        same = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * len(table), "f4")), 2)
        pq.write_table(table.set_column(3, "taste", same), file)
    rows = pd.DataFrame(pq.read_table(path).to_pylist()).astype(str)
    assert check(directory)[1]["repeated rows", "train"] == rows.duplicated().mean()


@pytest.mark.slow
def test_users_have_the_samples_that_the_feed_makes(tmp_path):
    """Row for row: label, columns, and a history of the same hash and length."""
    rules = replace(small_users.RULES, negatives_per_positive=3)
    users = small_users.write_users_dataset(tmp_path / "users", [[[3, 12, 1], [7]], [[25]]], rules)
    dataset = DatasetDirectory.open(users)
    for mapping in ("train", "test"):
        made = MadeRows(dataset, mapping)
        rows = [rows for part in made.parts for rows in made.read(part)]
        feed = open_loader(dataset, mapping, dataset.schema.column_names, 500, Ranks())
        ((inputs, labels),) = list(feed)
        expected = {"label": labels.numpy(), **{n: x.numpy() for n, x in inputs.items()}}
        names = ["user", "country", "thing_trgt", "kind_trgt"]
        history = expected["thing_pos"]
        offsets = np.arange(len(history) + 1) * history.shape[1]
        columns = {name: expected[name] for name in names}
        lists = Column(history.ravel(), offsets)
        wanted = CheckedRows(expected["label"].astype("int8"), columns, lists)
        assert sum(made.parts.values()) == len(wanted.hashes)
        assert [list(part.columns) for part in rows] == [names] * len(rows)
        found = np.concatenate([part.hashes for part in rows])
        np.testing.assert_array_equal(np.sort(found), np.sort(wanted.hashes))
        assert sum(part.lengths.sum() for part in rows) == wanted.lengths.sum()


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("country", 210, 4, "row 61: column country"),
        ("item_pos", 210, np.array([7, 51]), "row 61: column item_pos holds an id outside"),
        ("user", 3, None, "missing value"),
        ("label", 200, 2, "row 51: column label holds a label other than 0 and 1. Received: 2"),
    ],
)
def test_rows_that_cannot_be_are_refused_with_their_place(
    write, run_cli, column, row, value, message
):
    train = TRAIN[:300].astype({"user": "Int64"})
    train.at[row, column] = value
    result = run_cli("data", "check", "--dataset_dir", write(train, TEST))
    assert message in str(result.exception)


def test_more_rows_than_are_looked_at_leave_out_what_needs_all(write):
    dataset = DatasetDirectory.open(write(TRAIN, TEST))
    check = check_dataset.DatasetCheck(dataset, most_rows=200)
    found = {finding.check for finding in check.run()}
    assert check.sampled
    assert 100 <= check.rows["train"] < 1000
    orders = {"id above the last", "rank in the file"}
    assert found == {"rows of label 1", "AUC of it alone", *orders}
    rows = FileRows(dataset, "train")
    assert sum(rows.parts.values()) == 1000 and len(rows.parts) == 6
    whole = check_dataset.DatasetCheck(dataset, most_rows=1000)
    assert "repeated rows" in {finding.check for finding in whole.run()}


def test_of_very_many_rows_a_share_has_all_its_repetitions():
    random = np.random.default_rng(0)
    hashes = random.integers(0, 2**63, 5000).astype(np.uint64)
    kept = SampleHashes(most=1000)
    for part in np.split(np.concatenate([hashes, hashes[:2500]]), 15):
        kept.add(part)
    repeated, of = kept.repeated()
    assert kept.one_of == 8
    assert of <= 1000
    assert repeated / of == pytest.approx(1 / 3, abs=0.06)
    test = SampleHashes()
    test.add(hashes[:100])
    assert test.found_in(kept)[0] == test.found_in(kept)[1] > 5


def test_users_without_an_id_are_not_counted_as_one(write, check):
    test = some_rows(200, 1)
    test.loc[::2, "user"] = 0
    _, values = check(write(some_rows(400, 0), test))
    known = test[test["user"] > 0]
    positives = known["label"].sum() / known["user"].nunique()
    assert values["positives per user", "test"] == pytest.approx(positives)
    test["user"] = 0
    _, values = check(write(some_rows(400, 0), test))
    assert ("positives per user", "test") not in values


def test_users_are_checked_by_their_samples(tmp_path, check):
    lengths = [[[30, 12, 9], [7]], [[25]]]
    users = small_users.write_users_dataset(tmp_path / "users", lengths, time_intervals="hours")
    _, values = check(users)
    assert values["rows of label 1", "train"] == values["rows of label 1", "test"] == 0.5
    assert values["positives per user", "test"] == 1
    assert ("rank in the file", "train") not in values
