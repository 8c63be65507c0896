from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from preprocess_runs import all_bytes

from merlin_sim.schemas.channels import BEHAVIOUR
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows import text_lines
from merlin_sim.workflows.preprocess import user_buckets, write_samples

pytestmark = pytest.mark.slow


def test_positives_are_those_of_a_plain_reading(raw, dataset, plain_rules, rows_of, positives_of):
    rules = plain_rules(raw)
    for mapping, expected in (("train", rules.train), ("test", rules.test)):
        assert_rows(rows_of(dataset, mapping), expected, positives_of)


def assert_rows(rows, expected, positives_of):
    """The positives are these, and each has a negative of the same user and history."""
    assert positives_of(rows) == expected
    assert len(rows) == 2 * sum(expected.values())
    names = ["user_id", "item_id_pos"]
    sides = [
        Counter(rows[rows["label"] == label][names].itertuples(index=False, name=None))
        for label in (0, 1)
    ]
    assert sides[0] == sides[1]


def test_the_rules_can_be_changed_and_repetitions_are_counted(
    raw, tmp_path, run_cli, plain_rules, rows_of, positives_of, monkeypatch
):
    """Rows fill several files, too."""
    monkeypatch.setattr(write_samples, "ROWS_PER_FILE", 700)
    dataset, longest, user, training = tmp_path / "dataset", 7, 1, 4
    result = run_cli(
        "preprocess", "amazon-books", "--amazon_dataset_path", raw, "--output_path", dataset,
        "--max_sequence_length", longest, "--shortest_sequence_for_user", user,
        "--shortest_sequence_for_training", training,
    )  # fmt: skip
    assert result.exception is None
    rules = plain_rules(raw, longest=longest, shortest_user=user, shortest_training=training)
    assert len(list((dataset / "train").iterdir())) > 5
    for mapping, expected in (("train", rules.train), ("test", rules.test)):
        assert_rows(rows_of(dataset, mapping), expected, positives_of)
    repeated = rules.kept.duplicated(["reviewerID", "asin", "unixReviewTime"]).sum()
    assert repeated > 20
    assert f"{repeated} of them repetitions" in result.output


def test_a_log_worked_out_by_hand(tmp_path, raw_writer, preprocess, rows_of):
    raw = raw_writer(
        tmp_path / "raw",
        [("u", "b", 5), ("u", "a", 5), ("u", "c", 1), ("v", "a", 9), ("u", "c", 1)],
        [("a", [["Books", "X"], ["Y"]]), ("b", [["Z"]]), ("unused", [["W"]])],
    )
    options = ("--shortest_sequence_for_user", 2, "--max_sequence_length", 2)
    dataset = preprocess(raw, tmp_path / "dataset", *options)
    train, test = rows_of(dataset, "train"), rows_of(dataset, "test")
    assert sorted(train[train["label"] == 1]["item_id_pos"]) == [("c",), ("c", "c")]
    positive = test[test["label"] == 1].iloc[0]
    assert positive["user_id"] == "u"
    assert (positive["item_id_trgt"], positive["cat_id_trgt"]) == ("b", "Z")
    assert positive["item_id_pos"] == ("c", "a")
    assert positive["cat_id_pos"] == ("no_category", "X")
    assert set(pd.read_parquet(dataset / "categories/cat_id.parquet")["key"]) == {
        "X", "Z", "no_category",
    }  # fmt: skip


def test_negatives_are_drawn_from_all_interactions_with_their_categories(
    raw, dataset, plain_rules, rows_of
):
    rules = plain_rules(raw)
    rows = rows_of(dataset, "train")
    assert (rows["item_id_neg"].str.len() == rows["item_id_pos"].str.len()).all()
    drawn = Counter(item for items in rows["item_id_neg"] for item in items)
    drawn += Counter(rows[rows["label"] == 0]["item_id_trgt"])
    total, everything = sum(drawn.values()), sum(rules.popularity.values())
    assert set(drawn) <= set(rules.popularity)
    for item, count in rules.popularity.most_common(30):
        share = count / everything
        assert abs(drawn[item] / total - share) < 5 * np.sqrt(share / total) + 1e-3
    for items, categories in zip(rows["item_id_neg"], rows["cat_id_neg"], strict=True):
        assert categories == tuple(map(rules.category_of, items))
    negatives = rows[rows["label"] == 0]
    assert list(negatives["cat_id_trgt"]) == [
        rules.category_of(i) for i in negatives["item_id_trgt"]
    ]
    # A row's negatives are its own: hardly any two rows share them.
    assert rows["item_id_neg"][rows["item_id_neg"].str.len() > 3].duplicated().mean() < 0.01


def test_ids_and_columns_are_those_that_are_published(raw, dataset, plain_rules):
    rules = plain_rules(raw)
    opened = DatasetDirectory.open(dataset)
    BEHAVIOUR.check(opened.spec)
    values = {
        entry["name"]: entry["value"]
        for entry in json.loads((dataset / "metadata.json").read_text())["cardinalities"]
    }
    categories = set(map(rules.category_of, rules.popularity))
    assert values == {
        "user_id": len(rules.users),
        "item_id": len(rules.popularity),
        "cat_id": len(categories),
    }
    for domain, size in values.items():
        table = pd.read_parquet(dataset / "categories" / f"{domain}.parquet")
        assert table["id"].tolist() == list(range(1, size + 1))
        assert table["key"].is_unique
        column = opened.schema[domain if domain == "user_id" else f"{domain}_trgt"]
        assert column.int_domain.max == size
        assert column.properties["domain"]["name"] == domain
    assert opened.schema["item_id_neg"].value_count.max == 100
    published = [
        "label", "user_id", "item_id_trgt", "cat_id_trgt", "item_id_pos", "cat_id_pos",
        "item_id_neg", "cat_id_neg",
    ]  # fmt: skip
    assert opened.schema.column_names == published
    for mapping in ("train", "test"):
        for file in opened.files(mapping):
            assert list(pd.read_parquet(file)) == published
    assert sorted(path.name for path in dataset.iterdir()) == [
        "categories", "feature_spec.yaml", "history", "metadata.json", "schema.pbtxt", "test",
        "train", "workflow.json",
    ]  # fmt: skip


def test_rows_of_one_user_do_not_stand_together(dataset):
    users = pd.read_parquet(dataset / "train/part.0.parquet")["user_id"]
    together = (users == users.shift()).mean()
    shares = users.value_counts(normalize=True)
    assert together < 1.5 * (shares**2).sum() + 0.01


def without_history(dataset: Path) -> tuple[Path, list[tuple]]:
    """Take what is kept for the next day out of a dataset: there it is a file for each bucket.

    Gives its rows, in each user's order.
    """
    files = sorted((dataset / "history").iterdir())
    rows = pd.concat([pd.read_parquet(file) for file in files])
    shutil.rmtree(dataset / "history")
    document = json.loads((dataset / "workflow.json").read_text())
    assert sorted(document.pop("history")["files"]) == [file.name for file in files]
    document = {name: value for name, value in document.items() if "sha256" not in name}
    (dataset / "workflow.json").write_text(json.dumps(document))
    by_user = rows.sort_values("user_id", kind="stable")
    return dataset, list(by_user.itertuples(index=False, name=None))


def test_partitions_do_not_matter(raw, dataset, tmp_path, preprocess, monkeypatch):
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 100_000)
    monkeypatch.setattr(text_lines.line_blocks, "__defaults__", (100_000,))
    monkeypatch.setattr(user_buckets, "BYTES_PER_BUCKET", 200_000)
    again, kept = without_history(preprocess(raw, tmp_path / "dataset"))
    one_bucket, history = without_history(shutil.copytree(dataset, tmp_path / "one bucket"))
    assert all_bytes(one_bucket) == all_bytes(again) and kept == history


def test_a_new_days_reviews_go_on_from_the_old_ones(
    raw, tmp_path, preprocess, plain_rules, raw_writer
):
    """Those of one time stand in the order of items, among what is kept too."""
    kept = plain_rules(raw).kept
    kept = kept.assign(unixReviewTime=kept["unixReviewTime"] // 10**7)  # many of one time
    names = ["reviewerID", "asin", "unixReviewTime"]
    reviews = list(kept[names].sample(frac=1, random_state=1).itertuples(index=False, name=None))
    middle = int(kept["unixReviewTime"].median())
    assert kept.duplicated(names[::2]).sum() > 50
    metadata = [(item, [["A"]]) for item in sorted(kept["asin"].unique())]
    days = {
        "old": [review for review in reviews if review[2] < middle],
        "new": [review for review in reviews if review[2] >= middle],
        "both": reviews,
    }
    for day, rows in days.items():
        raw_writer(tmp_path / day, rows, metadata)
    rules = ("--max_sequence_length", 4, "--shortest_sequence_for_user", 1)
    old = preprocess(tmp_path / "old", tmp_path / "first", *rules)
    fitted = ("--fitted", old, "--test_from")
    both = preprocess(tmp_path / "both", tmp_path / "whole", *fitted, middle)
    new = preprocess(tmp_path / "new", tmp_path / "next", *fitted, middle + 1, "--history", old)
    wanted = pd.read_parquet(both / "test")
    found = pd.concat([pd.read_parquet(new / mapping) for mapping in ("train", "test")])
    by_row = [
        Counter(tuple(map(str, row)) for row in frame.itertuples(index=False))
        for frame in (wanted, found)
    ]
    assert by_row[0] == by_row[1]
    assert len(wanted) > 50
