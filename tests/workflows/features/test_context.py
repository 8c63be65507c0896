"""What is of an interaction itself, such as the device, as ids: its context."""

from __future__ import annotations

import pandas as pd
import pyarrow.parquet as pq
import pytest
from feature_logs import write_features
from fed_samples import assert_same_samples
from stored_samples import keys_of

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

FEATURES = """
features:
  device: {type: category, of: interaction}
  slot: {type: number, of: interaction, buckets: [2, 5]}
crosses:
  device_brand: {columns: [device, brand], buckets: 1000}
"""
NAMES = ("who", "what", "when", "device", "slot", "brand", "clicked")
ROWS = [
    ("u1", "a", 1, "phone", 1, "x", 1),
    ("u1", "b", 2, "tv", 2, "y", 1),
    ("u1", "a", 3, None, 9, "x", 0),
    ("u1", "c", 4, "phone", None, "y", 1),
    ("u2", "b", 1, "tv", 5, "y", 1),
    ("u2", "c", 2, "desk", 4, "y", 1),
    ("u2", "a", 3, "phone", 1, "x", 1),
]
EXPECTED = {  # user and how many of its rows came before: device, slot
    ("u1", 0): ("phone", "bucket 0"),
    ("u1", 1): ("tv", "bucket 1"),
    ("u1", 2): ("no_device", "bucket 2"),
    ("u1", 3): ("phone", "no_slot"),
    ("u2", 0): ("tv", "bucket 2"),
    ("u2", 1): ("desk", "bucket 1"),
    ("u2", 2): ("phone", "bucket 0"),
}


@pytest.fixture(scope="module")
def run(preprocess_log, tmp_path_factory):
    directory = tmp_path_factory.mktemp("context")
    pd.DataFrame(ROWS, columns=NAMES).to_parquet(directory / "log.parquet", row_group_size=3)
    features = write_features(directory / "features.yaml", FEATURES)

    def run(output, *more, log="log.parquet"):
        given = ("--features", features, "--item_feature_columns", "brand", "--fit_on", "all")
        return preprocess_log(
            directory / output, directory / log, *(() if "--fitted" in more else given),
            "--shortest_sequence_for_user", 1, "--shortest_sequence_for_training", 0,
            "--order_of_equal_times", "log", "--validation", "none", *more,
        )[0]  # fmt: skip

    run.directory = directory
    return run


@pytest.fixture(scope="module")
def dataset(run):
    return run("dataset")


def rows_of(dataset):
    frames = [pq.read_table(dataset / mapping).to_pandas() for mapping in ("train", "test")]
    rows = pd.concat(frames, ignore_index=True)
    for name in ("who", "device", "slot"):
        keys = keys_of(dataset, name)
        rows[name] = [keys[number] for number in rows[name]]
    rows["place"] = list(zip(rows["who"], map(len, rows["what_pos"]), strict=True))
    return rows


def test_each_sample_has_its_own_context_and_a_drawn_one_its_positives(dataset):
    rows = rows_of(dataset)
    assert len(rows) == 2 * len(ROWS)
    for row in rows.to_dict("records"):  # both labels
        assert (row["device"], row["slot"]) == EXPECTED[row["place"]]
    opened = DatasetDirectory.open(dataset)
    assert opened.channels["context_features"] == ["device", "slot"]
    assert opened.channels["user_features"] == ["who"]
    tags = {tag.value if hasattr(tag, "value") else tag for tag in opened.schema["device"].tags}
    assert {"context", "categorical"} <= tags
    assert opened.spec.feature_spec["device"].cardinality == 4
    # A context is crossed with the item.
    rows = pq.read_table(dataset / "train").to_pandas()
    pairs = rows.groupby(["device", "brand_trgt"])["device_brand"].agg(
        lambda found: len({ids[0] for ids in found})
    )
    assert (pairs == 1).all() and len(pairs) > 3


@pytest.mark.slow
def test_labels_leave_each_row_its_context(run):
    rows = rows_of(run("labelled", "--label_column", "clicked"))
    shown = rows[(rows["who"] == "u1") & (rows["label"] == 0)]
    assert shown[["device", "slot"]].to_numpy().tolist() == [["no_device", "bucket 2"]]


@pytest.mark.slow
@pytest.mark.parametrize("grow", [False, True])
def test_the_next_day_knows_the_contexts(grow, run, dataset):
    rows = [("u1", "a", 10, "watch", 3, "x", 1), ("u1", "b", 11, "tv", 3, "y", 1)]
    pd.DataFrame(rows, columns=NAMES).to_parquet(run.directory / "next.parquet")
    more = ["--grow"] if grow else []
    output = run(
        f"next {grow}", "--fitted", dataset, "--history", dataset, *more, log="next.parquet"
    )
    found = rows_of(output)
    assert set(found["device"]) == {"watch" if grow else None, "tv"}
    assert set(found["slot"]) == {"bucket 1"}
    assert found["what_pos"].map(len).min() >= 4


@pytest.mark.slow
def test_a_fitted_workflow_and_one_row_a_user_give_the_same_rows(run, dataset):
    made = FittedWorkflow.load(dataset).samples(pd.DataFrame(ROWS, columns=NAMES), "train")
    names = ["who", "device", "slot", "what_trgt", "label"]
    stored = pq.read_table(dataset / "train").to_pandas()
    found = [frame[names].sort_values(names).to_numpy().tolist() for frame in (made, stored)]
    assert found[0] == found[1]
    assert assert_same_samples(run("users", "--layout", "users"), dataset) == 2 * len(ROWS)
