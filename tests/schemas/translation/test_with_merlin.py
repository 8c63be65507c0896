"""The schemas at work in Merlin itself: NVTabular's come back, ours drive models and loaders."""

from __future__ import annotations

import numpy as np
import nvtabular as nvt
import pandas as pd
from merlin.io import Dataset as MerlinDataset
from merlin.schema import Tags

from merlin_sim.schemas.column_record import same_schema
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.merlin_schema import to_feature_spec, to_merlin_schema
from merlin_sim.schemas.schema_file import schema_from_text, schema_to_text

ops = nvt.ops


def test_a_schema_that_a_workflow_made_comes_back_and_its_directory_opens_by_its_tags(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    chance = np.random.default_rng(3)
    history = [list(chance.integers(1, 9, chance.integers(1, 5))) for _ in range(30)]
    frame = pd.DataFrame(
        {
            "click": chance.integers(0, 2, 30).astype("int8"),
            "item": chance.integers(1, 9, 30),
            "seen": history,
            "unseen": history,
            "price": chance.random(30).astype("float32"),
        }
    )
    normalized = ["price"] >> ops.FillMissing() >> ops.LogOp() >> ops.Normalize()
    bucketized = ["price"] >> ops.Bucketize({"price": [0.2, 0.5]}) >> ops.Rename(postfix="_bucket")
    graph = (
        (["click"] >> ops.AddTags([Tags.TARGET]))
        + (["item"] >> ops.Categorify() >> ops.AddTags([Tags.ITEM_ID]))
        + (["seen"] >> ops.Categorify() >> ops.ListSlice(3) >> ops.AddTags([Tags.SEQUENCE]))
        + (["unseen"] >> ops.Categorify() >> ops.AddTags([Tags.SEQUENCE, "negative_history"]))
    )
    others = (normalized >> ops.Rename(postfix="_norm")) + bucketized
    others += [["click", "item"]] >> ops.Categorify(encode_type="combo")
    workflow = nvt.Workflow(graph)
    train = workflow.fit_transform(MerlinDataset(frame))
    train.to_parquet(str(tmp_path / "out" / "train"))
    for fitted in (workflow, nvt.Workflow(others).fit(MerlinDataset(frame))):
        schema = fitted.output_schema
        assert to_merlin_schema(to_feature_spec(schema)) == schema
        assert same_schema(to_merlin_schema(to_feature_spec(schema)), schema)
        assert same_schema(schema_from_text(schema_to_text(schema)), schema)
    workflow.transform(MerlinDataset(frame[:20])).to_parquet(str(tmp_path / "out" / "test"))
    dataset = DatasetDirectory.open(tmp_path / "out")
    assert dataset.channels == {
        "label": ["click"],
        "target_item_features": ["item"],
        "positive_history": ["seen"],
        "negative_history": ["unseen"],
    }
    assert len(dataset.files("train")) == len(dataset.files("test")) == 1
