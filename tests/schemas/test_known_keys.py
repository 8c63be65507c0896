"""What ids mean: noted with a model, compared with another dataset's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.fitted_record import fitted_on
from merlin_sim.schemas.known_keys import (
    IdsNote,
    digest_of_keys,
    note_ids,
    other_meanings,
    read_keys,
)


def schema(items: int, users: int = 3) -> Schema:
    def ids(name: str, largest: int, domain: str) -> ColumnSchema:
        properties = {"domain": {"min": 0, "max": largest, "name": domain}}
        return ColumnSchema(name, dtype=np.int64, tags=[Tags.CATEGORICAL], properties=properties)

    label = ColumnSchema("label", dtype=np.int8, tags=[Tags.TARGET])
    return Schema(
        [label, ids("who", users, "who"), ids("item", items, "item"), ids("seen", items, "item")]
    )


def write_keys(directory: Path, domain: str, keys: list, ids: list[int] | None = None) -> None:
    (directory / "categories").mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": ids or list(range(1, len(keys) + 1)), "key": keys})
    pq.write_table(table, directory / "categories" / f"{domain}.parquet")


@pytest.fixture
def old(tmp_path):
    write_keys(tmp_path / "old", "item", ["b", "a", "d"])
    return tmp_path / "old"


def test_keys_that_were_there_keep_their_ids_and_new_ones_follow(old, tmp_path):
    note = note_ids(schema(3), old)
    assert note.domains["item"].keys == 3 and note.domains["who"].digest is None
    write_keys(tmp_path / "new", "item", ["b", "a", "d", "c"])
    assert other_meanings(note, schema(4, users=5), tmp_path / "new") == []


@pytest.mark.parametrize(
    "keys, largest, said",
    [
        (["a", "b", "d", "e"], 4, "the first 3 keys of .* should be those that are known"),
        (["b", "a", "d"], 2, "its ids should end at 3 or later.* Received: 2"),
        (["ba", "", "d", "e"], 4, "the first 3 keys"),
    ],
)
def test_other_keys_are_reported(old, tmp_path, keys, largest, said):
    note = note_ids(schema(3), old)
    write_keys(tmp_path / "new", "item", keys)
    (found,) = other_meanings(note, schema(largest), tmp_path / "new")
    assert re.search(said, found)


def test_a_vocabulary_on_one_side_alone_is_reported(old, tmp_path):
    (found,) = other_meanings(note_ids(schema(3), old), schema(3), tmp_path)
    assert "a vocabulary gave the ids" in found and "no vocabulary" in found
    (found,) = other_meanings(note_ids(schema(3), tmp_path), schema(3), old)
    assert "ids are keys" in found


def workflow_of(mean):
    """A saved workflow of one number, which goes through Normalize."""
    features = {"features": {"price": {"type": "number", "of": "item"}}}
    learned = {"prior": 0.0, "counted_until": None}
    histories = {"config": {"features": features}, "learned": learned}
    column = [{"name": "price"}]
    return {
        "operators": [
            {"operator": "nvtabular.Normalize", "learned": {"means": {"price": mean}}},
            {"operator": "GroupHistories", **histories},
        ],
        "nodes": [
            {"operator": 0, "parents": [], "dependencies": [], "columns": column},
            {"operator": 1, "parents": [0], "dependencies": [], "columns": []},
        ],
    }


def test_numbers_that_were_fitted_otherwise_are_reported(old, tmp_path):
    write_keys(tmp_path / "new", "item", ["b", "a", "d"])
    for directory, mean in ((old, 1.0), (tmp_path / "new", 2.0)):
        (directory / "workflow.json").write_text(json.dumps(workflow_of(mean)))
    note = note_ids(schema(3), old)
    assert other_meanings(note, schema(3), old) == []
    (found,) = other_meanings(note, schema(3), tmp_path / "new")
    assert "numbers and crosses of features were fitted otherwise" in found


def test_a_workflow_says_on_which_rows_it_was_fitted(tmp_path):
    assert fitted_on(tmp_path) is None
    saved = workflow_of(1.0)
    saved["operators"][1]["config"]["rules"] = {"fit_on": "all"}
    (tmp_path / "workflow.json").write_text(json.dumps(saved))
    assert fitted_on(tmp_path) == "all"
    clicks = {"operators": [], "rules": {"fit_on": "train"}}
    (tmp_path / "workflow.json").write_text(json.dumps(clicks))
    assert fitted_on(tmp_path) == "train"


def test_a_note_survives_json(old):
    note = note_ids(schema(3), old)
    assert IdsNote.parse(json.loads(json.dumps(note.to_dict()))) == note
    for other in (None, {}, {"domains": {"item": 3}, "fitted": None}, {"domains": {}}):
        assert IdsNote.parse(other) is None


@pytest.mark.parametrize("kind", [pa.int32(), pa.large_string()])
def test_a_digest_depends_on_keys_alone(kind):
    keys = pa.array([str(n) for n in (5, 70, 1, 12)]).cast(kind)
    cut = pa.chunked_array([keys.slice(0, 1), keys.slice(1, 2), keys.slice(3)])
    assert digest_of_keys(cut) == digest_of_keys(pa.chunked_array([keys]))
    assert digest_of_keys(cut.slice(0, 3)) == digest_of_keys(pa.chunked_array([keys[:3]]))
    assert digest_of_keys(cut) != digest_of_keys(cut.slice(1))
    one, other = pa.chunked_array([["ab", "c"]]), pa.chunked_array([["a", "bc"]])
    assert digest_of_keys(one) != digest_of_keys(other)


def test_keys_are_read_by_their_ids(tmp_path):
    (tmp_path / "categories").mkdir()
    counted = pa.table({"id": [1, 2, 3], "count": [5, 5, 5]})  # of items without keys
    pq.write_table(counted, tmp_path / "categories/item.parquet")
    assert read_keys(tmp_path, "item") is None
    note = note_ids(schema(3), tmp_path)
    assert note.domains["item"].digest is None
    assert other_meanings(note, schema(4), tmp_path) == []
    write_keys(tmp_path, "item", ["second", "first"], ids=[2, 1])
    assert read_keys(tmp_path, "item").to_pylist() == ["first", "second"]
    write_keys(tmp_path, "item", ["one", "other"], ids=[1, 1])
    with pytest.raises(MerlinSimError, match="each id should have one key"):
        read_keys(tmp_path, "item")
    pq.write_table(pa.table({"key": ["one"]}), tmp_path / "categories/item.parquet")
    with pytest.raises(MerlinSimError, match="item.parquet: expected the columns id and key"):
        read_keys(tmp_path, "item")
    (tmp_path / "categories/item.parquet").write_text("no parquet")
    with pytest.raises(MerlinSimError, match="item.parquet: expected the columns id and key"):
        read_keys(tmp_path, "item")
