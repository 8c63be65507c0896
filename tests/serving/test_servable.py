"""A servable that is not what was exported is refused before anything of it is used."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from merlin.schema import ColumnSchema, Schema, Tags
from ranking_rows import ranking_schema

from merlin_sim.foundation.digest import DIGEST, with_own_digest
from merlin_sim.serving.servable import (
    MANIFEST,
    ServableError,
    ServedColumns,
    read_manifest,
    write_manifest,
)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "model" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "model" / "variables" / "data").write_bytes(b"weights")
    write_manifest(tmp_path, {"histories": "ragged"})
    return tmp_path


def edit(directory, change):
    """Change what the manifest says, as if it had been written so."""
    document = json.loads((directory / MANIFEST).read_text())
    document.pop(DIGEST)
    change(document)
    (directory / MANIFEST).write_text(with_own_digest(document))


def test_what_was_written_is_read(directory):
    document = read_manifest(directory)
    assert document["histories"] == "ragged"
    assert list(document["files"]) == ["model/saved_model.pb", "model/variables/data"]
    assert document["files"]["model/saved_model.pb"] == {
        "bytes": 5,
        "sha256": "eef93e1d14482804277fca0172464032d1a4fdbcc338524059fa1e861454ad4d",
    }
    assert {"python", "tensorflow", "merlin-models"} <= set(document["versions"])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda d: (d / "model/saved_model.pb").write_bytes(b"GRAPH"), "sha256 is not"),
        (lambda d: (d / "model/saved_model.pb").write_bytes(b"longer"), "5 bytes, found 6"),
        (lambda d: (d / "model/variables/data").unlink(), "model/variables/data: missing"),
        (lambda d: (d / "model/more.py").write_text("x"), "model/more.py: not in the manifest"),
        (lambda d: os.symlink("/etc/passwd", d / "link"), "link: not in the manifest"),
        (lambda d: shutil.rmtree(d / "model"), "saved_model.pb: missing"),
    ],
)
def test_a_changed_directory_is_refused(directory, harm, message):
    harm(directory)
    with pytest.raises(ServableError, match=message):
        read_manifest(directory)


def test_every_problem_is_reported(directory):
    (directory / "model/saved_model.pb").unlink()
    (directory / "more").write_text("x")
    with pytest.raises(ServableError) as error:
        read_manifest(directory)
    assert "saved_model.pb: missing" in str(error.value)
    assert "more: not in the manifest" in str(error.value)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "model/../../outside"])
def test_a_path_that_leaves_the_directory_is_refused(directory, name):
    (directory.parent / "outside").write_text("x")
    edit(directory, lambda d: d["files"].update({name: {"bytes": 1, "sha256": "0"}}))
    with pytest.raises(ServableError, match="leaves the directory"):
        read_manifest(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=2), "expected format 3"),
        (lambda d: d.pop("format"), "Received: None"),
        (lambda d: d.update(files=[]), "a length and a sha256"),
        (lambda d: d.update(files={"a": {"bytes": "1"}}), "a length and a sha256"),
    ],
)
def test_a_manifest_of_another_form_is_refused(directory, change, message):
    edit(directory, change)
    with pytest.raises(ServableError, match=message):
        read_manifest(directory)


def test_an_edit_of_the_manifest_is_refused(directory):
    path = directory / MANIFEST
    path.write_text(path.read_text().replace('"histories": "ragged"', '"histories": "padded"'))
    with pytest.raises(ServableError, match=r"manifest\.json: not as it was written"):
        read_manifest(directory)


def test_no_directory_no_manifest_no_json(tmp_path):
    with pytest.raises(ServableError, match="does not exist"):
        read_manifest(tmp_path / "none")
    with pytest.raises(ServableError, match="merlin-sim export"):
        read_manifest(tmp_path)
    (tmp_path / MANIFEST).write_text("[")
    with pytest.raises(ServableError, match="expected JSON"):
        read_manifest(tmp_path)


def test_a_table_of_one_row_is_one_of_keys():
    """A column whose every key is rare still takes keys, and no numbers."""
    schema = ranking_schema((5, 1), numbers=1)
    names = ["category_0", "category_1", "number_0"]
    columns = ServedColumns.of_rows(Schema([schema[name] for name in names]), names)
    assert [column.largest_id for column in columns.targets] == [4, 0, None]
    assert columns.inputs["category_1"] == (np.int64, (-1,))


def test_histories_stand_in_the_order_of_the_targets_of_their_domains():
    """An event's items are looked up target by target, and written to the histories in order."""

    def ids(name, domain, tags, **kwargs):
        properties = {"domain": {"min": 0, "max": 9, "name": domain}}
        return ColumnSchema(name, dtype="int64", tags=tags, properties=properties, **kwargs)

    lists = {"dims": (None, (0, 5))}
    columns = ServedColumns.read(
        Schema(
            [
                ids("item", "item", [Tags.ITEM]),
                ids("shop", "shop", [Tags.ITEM]),
                ids("shop_hist", "shop", [Tags.SEQUENCE], **lists),
                ids("item_hist", "item", [Tags.SEQUENCE], **lists),
            ]
        )
    )
    assert [column.name for column in columns.targets] == ["item", "shop"]
    assert [column.name for column in columns.histories] == ["item_hist", "shop_hist"]
