"""What was fitted, on later logs and frames; and what is refused of it where it was changed."""

from __future__ import annotations

import gc
import json
import shutil
from collections import Counter

import pandas as pd
import pytest
from merlin.io import Dataset

from merlin_sim.foundation.digest import DIGEST
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.ops.workflow import Workflow
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow


@pytest.fixture
def artefacts(dataset, tmp_path):
    """The fitted state and nothing else."""
    directory = tmp_path / "fitted"
    shutil.copytree(dataset / "categories", directory / "categories")
    shutil.copy(dataset / "workflow.json", directory)
    return directory


@pytest.fixture
def events(raw, plain_rules):
    kept = plain_rules(raw).kept
    names = {"reviewerID": "user_id", "asin": "item_id", "unixReviewTime": "timestamp"}
    return kept.rename(columns=names)[list(names.values())].sample(frac=1, random_state=0)


def rows_of(frame: pd.DataFrame) -> Counter:
    rows = []
    for row in frame.to_dict("records"):
        rows.append(
            tuple(
                tuple(map(int, value)) if name.endswith(("_pos", "_neg")) else int(value)
                for name, value in row.items()
            )
        )
    return Counter(rows)


@pytest.mark.slow
def test_what_was_fitted_gives_the_rows_of_the_files(artefacts, events, dataset):
    fitted = FittedWorkflow.load(artefacts)
    for mapping in ("train", "test"):
        samples = fitted.samples(events, mapping)
        assert rows_of(samples) == rows_of(pd.read_parquet(dataset / mapping))


@pytest.mark.slow
def test_items_have_the_values_that_were_fitted_as_with_the_option(tmp_path, preprocess_log):
    """Prices rise in the log; what a fitted workflow makes has those that a servable knows."""
    (tmp_path / "price.yaml").write_text("features: {price: {type: number, of: item}}")
    rows = [(who, what, index, 10 + index) for who in "uvw" for index, what in enumerate("abcab")]
    log = pd.DataFrame(rows, columns=["who", "what", "when", "price"])
    log.to_parquet(tmp_path / "log.parquet")
    options = ("--shortest_sequence_for_user", 1, "--features", tmp_path / "price.yaml")
    first, _ = preprocess_log(tmp_path / "first", tmp_path / "log.parquet", *options)
    again, _ = preprocess_log(tmp_path / "again", tmp_path / "log.parquet", "--fitted", first)
    fitted = FittedWorkflow.load(first)
    for mapping in ("train", "validation", "test"):
        made, stored = fitted.samples(log, mapping), pd.read_parquet(again / mapping)
        assert rows_of(made) == rows_of(stored)
    assert made["price_trgt"].max() < pd.read_parquet(first / "test")["price_trgt"].max()


def _plain(frame: pd.DataFrame) -> list:
    frame = frame.sort_values("user_id").reset_index(drop=True)
    return [
        [value.tolist() if hasattr(value, "tolist") else value for value in row]
        for row in frame.itertuples(index=False)
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*in CPU mode")
def test_a_workflow_lasts_as_long_as_what_it_made_and_may_be_moved(artefacts, events, tmp_path):
    """Nobody keeps the FittedWorkflow, nor the workflow: a Dataset is worked out later."""
    loaded = FittedWorkflow.load(artefacts)
    expected = _plain(loaded.histories().transform(events))
    log = Dataset(events.reset_index(drop=True), npartitions=1, cpu=True)
    made = FittedWorkflow.load(artefacts).histories().transform(log)
    gc.collect()
    assert _plain(made.to_ddf().compute(scheduler="synchronous")) == expected
    loaded.histories().save(tmp_path / "saved")
    shutil.rmtree(artefacts)
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    del loaded
    gc.collect()
    assert _plain(Workflow.load(tmp_path / "moved").transform(events)) == expected


def test_unseen_keys(artefacts, events):
    fitted = FittedWorkflow.load(artefacts)
    user = events["user_id"].iloc[0]
    known = events[events["user_id"] == user].sort_values(["timestamp", "item_id"])
    new = pd.DataFrame({"user_id": user, "item_id": ["never seen"], "timestamp": [2_000_000_000]})
    stranger = known.assign(user_id="nobody")
    histories = fitted.histories().transform(pd.concat([known, new, stranger]))
    expected = fitted.histories().transform(known)
    assert len(histories) == 2
    ids = {row.user_id: list(row.item_id) for row in histories.itertuples()}
    known_id = expected["user_id"].iloc[0]
    assert known_id > 0
    assert ids == {known_id: list(expected["item_id"].iloc[0]), 0: ids[known_id]}


@pytest.mark.slow
def test_new_items_are_left_out_of_a_later_log_by_the_rules_of_the_fit(
    tmp_path, raw_writer, preprocess
):
    old = [("u", "abcb"[n % 4], n) for n in range(4)] + [("v", "c", 1), ("v", "a", 2)]
    metadata = [("a", [["A"]]), ("b", [["B"]]), ("c", [["C"]]), ("d", [["D"]])]
    options = ("--shortest_sequence_for_user", 2, "--max_sequence_length", 1)
    first = preprocess(raw_writer(tmp_path / "old", old, metadata), tmp_path / "first", *options)
    new = [("u", "b", 4), ("u", "a", 5), ("u", "d", 6), ("u", "c", 7)]
    new += [("w", "a", 1), ("w", "b", 2)]
    later = preprocess(
        raw_writer(tmp_path / "new", new, metadata), tmp_path / "later", "--fitted", first
    )
    rows = pd.read_parquet(later / "test/part.0.parquet")
    positive = rows[rows["label"] == 1].sort_values("user_id")
    assert positive["user_id"].tolist() == [0, 1]
    assert [list(items) for items in positive["item_id_pos"]] == [[1], [1]]
    assert positive["item_id_trgt"].tolist() == [2, 3]


@pytest.mark.slow
def test_columns_are_those_of_the_fit(tmp_path, run_cli):
    rows = {"who": [1, 1, 1], "what": [5, 6, 5], "when": [1, 2, 3], "brand": list("aba")}
    path, first = tmp_path / "log.csv", tmp_path / "first"
    pd.DataFrame(rows).to_csv(path, index=False)

    def run(output, *options):
        return run_cli(
            "preprocess", "log", path, "--output_path", tmp_path / output, *options
        ).exception  # fmt: skip

    columns = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
               "--item_feature_columns", "brand", "--shortest_sequence_for_user", 1,
               "--order_of_equal_times", "log", "--validation", "none")  # fmt: skip
    assert run("first", *columns) is None
    assert run("next", "--fitted", first) is None
    made = [tmp_path / name for name in ("first", "next")]
    assert len({(dataset / "test/part.0.parquet").read_bytes() for dataset in made}) == 1
    documents = [json.loads((dataset / "workflow.json").read_text()) for dataset in made]
    for document in documents:
        del document["history"], document[DIGEST]  # which rows were fitted on
    assert documents[0] == documents[1]
    refused = run("refused", "--fitted", first, "--item_column", "brand")
    assert isinstance(refused, MerlinSimError)
    assert f"--item_column: expected what, as {first} was fitted on, got brand." in str(refused)
    refused = str(run("refused", "--fitted", first, "--item_feature_columns", ""))
    assert "--item_feature_columns: expected brand, as" in refused and "got none" in refused
    # A log may begin with an item that is not known.
    path.write_text("who,what,when,brand\n1,9,1,a\n1,5,2,a\n1,6,3,b\n")
    assert run("unknown", "--fitted", first) is None
    rows = pd.read_parquet(tmp_path / "unknown/test/part.0.parquet")
    five = pd.read_parquet(first / "categories/what.parquet").set_index("key")["id"]["5"]
    assert [list(items) for items in rows["what_pos"]] == [[five], [five]]


@pytest.mark.slow
def test_a_feature_of_another_type_is_refused(tmp_path, preprocess_log):
    log = pd.DataFrame({"who": list("uuuvvv"), "what": list("ababab"), "when": [1, 2, 3] * 2})
    log = log.assign(city=[5, 6] * 3, shop=list("srsrsr"), size=[1.0, 2.0] * 3)
    log.to_parquet(tmp_path / "log.parquet")
    (tmp_path / "size.yaml").write_text("features: {size: {type: number, of: item, buckets: 2}}")
    given = ("--shortest_sequence_for_user", 1, "--validation", "none", "--order_of_equal_times",
             "log", "--user_feature_columns", "city", "--item_feature_columns", "shop",
             "--features", tmp_path / "size.yaml", "--layout", "users")  # fmt: skip
    first, _ = preprocess_log(tmp_path / "first", tmp_path / "log.parquet", *given)
    log.to_csv(tmp_path / "log.csv", index=False)
    for grow in ((), ("--grow",)):
        with pytest.raises(MerlinSimError, match="'city': expected whole numbers .*, found text"):
            preprocess_log(tmp_path / "next", tmp_path / "log.csv", "--fitted", first, *grow)
