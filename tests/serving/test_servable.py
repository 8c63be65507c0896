"""A servable that is not what was exported is refused; who meets which version of one."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hollow_servable import write_hollow_servable
from merlin.schema import ColumnSchema, Schema, Tags
from ranking_rows import ranking_schema

from merlin_sim.foundation.digest import DIGEST, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.servable import (
    MANIFEST,
    Servable,
    ServableError,
    ServedColumns,
    read_manifest,
    write_manifest,
)
from merlin_sim.serving.versions import (
    Canary,
    meets_canary,
    parse_canary,
    user_of_events,
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
        # Every problem is reported.
        (lambda d: shutil.rmtree(d / "model"), r"(?s)saved_model.pb: missing.*data: missing"),
        (lambda d: shutil.rmtree(d), "does not exist"),
        (lambda d: (d / MANIFEST).unlink(), "merlin-sim export"),
        (lambda d: (d / MANIFEST).write_text("["), "expected JSON"),
        (
            lambda d: (d / MANIFEST).write_text((d / MANIFEST).read_text().replace("rag", "wag")),
            r"manifest\.json: not as it was written",
        ),
    ],
)
def test_a_changed_directory_is_refused(directory, harm, message):
    harm(directory)
    with pytest.raises(ServableError, match=message):
        read_manifest(directory)


ODD = {"bytes": 1, "sha256": "0"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=2), "expected format 3"),
        (lambda d: d.pop("format"), "Received: None"),
        (lambda d: d.update(files=[]), "a length and a sha256"),
        (lambda d: d.update(files={"a": {"bytes": "1"}}), "a length and a sha256"),
        (lambda d: d["files"].update({"../outside": ODD}), "leaves the directory"),
        (lambda d: d["files"].update({"/etc/passwd": ODD}), "leaves the directory"),
        (lambda d: d["files"].update({"model/../../outside": ODD}), "leaves the directory"),
    ],
)
def test_a_manifest_of_another_form_is_refused(directory, change, message):
    (directory.parent / "outside").write_text("x")
    edit(directory, change)
    with pytest.raises(ServableError, match=message):
        read_manifest(directory)


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
    schema = Schema(
        [
            ids("item", "item", [Tags.ITEM]),
            ids("shop", "shop", [Tags.ITEM]),
            ids("shop_hist", "shop", [Tags.SEQUENCE], **lists),
            ids("item_hist", "item", [Tags.SEQUENCE], **lists),
        ]
    )
    columns = ServedColumns.read(schema, schema.column_names)
    assert [column.name for column in columns.targets] == ["item", "shop"]
    assert [column.name for column in columns.histories] == ["item_hist", "shop_hist"]


USERS = [f"user {number}" for number in range(20_000)]


def test_a_share_of_the_users_meets_a_canary_and_always_the_same():
    met = {user for user in USERS if meets_canary(user, Canary(8, 0.05))}
    assert len(met) == pytest.approx(1000, rel=0.1)
    # A larger share has all that a smaller one has: nobody changes to and fro as it grows.
    larger = {user for user in USERS if meets_canary(user, Canary(8, 0.2))}
    assert met < larger and len(larger) == pytest.approx(4000, rel=0.1)
    # Another version is met by others: one in twenty of these by chance.
    other = {user for user in USERS if meets_canary(user, Canary(9, 0.05))}
    assert len(met & other) < 100
    # What was given once holds for good, in whatever process and release.
    assert sorted(met)[:2] == ["user 10032", "user 10051"]
    # So does a key that is no text: its event is refused by that version's vocabulary.
    canary = Canary(8, 0.5)
    assert {meets_canary(f"{number}\udfff", canary) for number in range(40)} == {True, False}


@pytest.mark.parametrize("text", ["", "8", "8:", ":0.5", "8:0", "8:1", "0:0.5", "a:0.5", "8:nan"])
def test_what_is_no_canary_is_refused(text):
    with pytest.raises(MerlinSimError, match="`canary` should be a version and a share"):
        parse_canary(text)


def test_a_context_is_no_user(tmp_path):
    """Neither has it a history of its own, nor is a share of its values a share of the users."""
    servable = Servable.open(write_hollow_servable(tmp_path, "a"))
    who = replace(servable.schema["who"], tags=(Tags.CONTEXT, Tags.CATEGORICAL))
    servable = replace(servable, schema=Schema([*servable.schema.remove_col("who"), who]))
    assert "who" in servable.columns.inputs
    with pytest.raises(MerlinSimError, match="the model reads no column of a user"):
        servable.check_reads_histories()
    with pytest.raises(MerlinSimError, match="a canary is chosen by users"):
        user_of_events(servable)


def test_a_canary_needs_users(tmp_path):
    servable = Servable.open(write_hollow_servable(tmp_path, "a"))
    assert user_of_events(servable) == "who"
    servable.manifest["request"]["of"] = "rows"
    with pytest.raises(MerlinSimError, match="a canary is chosen by users"):
        user_of_events(servable)
