"""The schemas at work in Merlin itself: NVTabular's come back, ours drive models and loaders."""

from __future__ import annotations

import numpy as np
import nvtabular as nvt
import pandas as pd
import published_layout
import pytest
from merlin.io import Dataset as MerlinDataset
from merlin.schema import Tags

from merlin_sim.schemas.adopt import adopt
from merlin_sim.schemas.column_record import same_schema
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.merlin_schema import to_feature_spec, to_merlin_schema
from merlin_sim.schemas.schema_file import schema_from_text, schema_to_text

ops = nvt.ops


def events():
    chance = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "user": chance.integers(1, 9, 60).astype("int64"),
            "item": chance.choice(list("abcdef"), 60),
            "time": np.arange(60),
            "price": chance.random(60).astype("float32"),
            "click": chance.integers(0, 2, 60).astype("int8"),
        }
    )


def categorify():
    return (
        (["user"] >> ops.Categorify() >> ops.AddTags([Tags.USER_ID]))
        + (["item"] >> ops.Categorify(freq_threshold=2) >> ops.AddTags([Tags.ITEM_ID]))
        + (["click"] >> ops.AddTags([Tags.TARGET, Tags.BINARY_CLASSIFICATION]))
    )


def normalized():
    continuous = ["price"] >> ops.FillMissing() >> ops.LogOp() >> ops.Normalize()
    renamed = continuous >> ops.Rename(postfix="_norm")
    bucketized = ["price"] >> ops.Bucketize({"price": [0.2, 0.5]}) >> ops.Rename(postfix="_bucket")
    return renamed + bucketized


def sessions():
    grouped = (["user", "item", "time"] >> ops.Categorify()) >> ops.Groupby(
        groupby_cols=["user"], sort_cols=["time"], aggs={"item": ["list", "count"], "time": "max"}
    )
    sliced = grouped["item_list"] >> ops.ListSlice(-4) >> ops.AddTags([Tags.SEQUENCE])
    return grouped["user", "item_count"] + sliced


def joint():
    return [["user", "item"]] >> ops.Categorify(encode_type="combo")


@pytest.mark.parametrize("graph", [categorify, normalized, sessions, joint])
def test_schemas_that_workflows_emit_come_back(graph, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Categorify leaves its vocabularies where it runs
    workflow = nvt.Workflow(graph())
    workflow.fit(MerlinDataset(events()))
    schema = workflow.output_schema
    assert same_schema(to_merlin_schema(to_feature_spec(schema)), schema)
    assert same_schema(schema_from_text(schema_to_text(schema)), schema)
    assert workflow.output_schema == to_merlin_schema(to_feature_spec(schema))


def test_a_directory_that_a_workflow_wrote_opens_by_its_tags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(3)
    history = [list(chance.integers(1, 9, chance.integers(1, 5))) for _ in range(30)]
    frame = pd.DataFrame(
        {
            "click": chance.integers(0, 2, 30).astype("int8"),
            "item": chance.integers(1, 9, 30),
            "seen": history,
            "unseen": history,
        }
    )
    graph = (
        (["click"] >> ops.AddTags([Tags.TARGET]))
        + (["item"] >> ops.Categorify() >> ops.AddTags([Tags.ITEM_ID]))
        + (["seen"] >> ops.Categorify() >> ops.ListSlice(3) >> ops.AddTags([Tags.SEQUENCE]))
        + (["unseen"] >> ops.Categorify() >> ops.AddTags([Tags.SEQUENCE, "negative_history"]))
    )
    workflow = nvt.Workflow(graph)
    train = workflow.fit_transform(MerlinDataset(frame))
    train.to_parquet(str(tmp_path / "out" / "train"))
    workflow.transform(MerlinDataset(frame[:20])).to_parquet(str(tmp_path / "out" / "test"))
    dataset = DatasetDirectory.open(tmp_path / "out")
    assert dataset.channels == {
        "label": ["click"],
        "target_item_features": ["item"],
        "positive_history": ["seen"],
        "negative_history": ["unseen"],
    }
    assert len(dataset.files("train")) == len(dataset.files("test")) == 1


@pytest.mark.slow
def test_merlin_models_share_tables_and_read_ragged_lists(tmp_path):
    import merlin.models.tf as mm

    adopt(published_layout.write(tmp_path / "data"), 1)
    dataset = DatasetDirectory.open(tmp_path / "data")
    features = dataset.schema.excluding_by_tag(Tags.TARGET)
    embeddings = mm.Embeddings(features, dim=4)
    assert sorted(embeddings.parallel_layers) == ["cat_id", "item_id", "user_id"]

    parquet = MerlinDataset([str(f) for f in dataset.files("train")], engine="parquet")
    parquet.schema = dataset.schema
    loader = mm.Loader(parquet, batch_size=16, shuffle=False)
    inputs, label = next(iter(loader))
    assert label.shape[0] == 16
    assert "item_id_pos__offsets" in inputs
    assert inputs["item_id_pos__values"].shape[0] == inputs["item_id_pos__offsets"][-1]

    model = mm.Model(
        mm.InputBlockV2(features, categorical=embeddings),
        mm.MLPBlock([4]),
        mm.BinaryOutput("label"),
    )
    model.compile(optimizer="sgd")
    model.fit(loader, epochs=1, verbose=0)
    rows = {
        name: table.table.embeddings.shape[0] for name, table in embeddings.parallel_layers.items()
    }
    assert rows == {"user_id": 10, "item_id": 51, "cat_id": 8}
