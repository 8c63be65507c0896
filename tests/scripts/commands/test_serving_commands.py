"""From a checkpoint to scores: `merlin-sim export` and `merlin-sim score`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from in_process import answer, run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.fingerprint import fingerprint
from merlin_sim.serving.servable import Servable

pytestmark = pytest.mark.slow
ROWS = 40


@pytest.fixture(scope="module")
def trained(save_checkpoint):
    """A model, and a run's directory of checkpoints with its weights."""
    return save_checkpoint("din", embedding_dim=4)


@pytest.fixture(scope="module")
def exported(dataset, trained, tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("exports") / "servable"
    arguments = ["--load_checkpoint_path", trained[1], "--dataset_dir", dataset.path]
    said = run("export", *arguments, "--output", output)
    assert "step 7, the newest: its run chose no best one" in said and "exported" in said
    return output


def test_the_step_to_export_can_be_named(dataset, trained, tmp_path):
    arguments = ["--load_checkpoint_path", trained[1], "--dataset_dir", dataset.path, "--step"]
    with pytest.raises(MerlinSimError, match=r"that are there \(.*7\)\. Received: 8"):
        run("export", *arguments, "8", "--output", tmp_path / "out")
    assert "exported" in run("export", *arguments, "7", "--output", tmp_path / "out")


def test_a_checkpoint_becomes_scores(dataset, trained, exported, tmp_path):
    model, _ = trained
    servable = Servable.open(exported)
    assert servable.manifest["checkpoint"]["name"] == "step-0000000007"
    assert servable.manifest["checkpoint"]["dataset"] == fingerprint(dataset)
    moved = tmp_path / "moved"
    shutil.copytree(exported, moved)
    rows = pq.read_table(dataset.path / "test.parquet").to_pylist()
    with open(tmp_path / "events.jsonl", "w") as file:
        for row in rows:
            event = {"reader": row["reader"], "history": row["read"], "candidates": [row["book"]]}
            file.write(json.dumps(event) + "\n")
    output = tmp_path / "scores.parquet"
    said = run("score", moved, "--input", tmp_path / "events.jsonl", "--output", output)
    assert f"{ROWS} events, {ROWS} candidates scored" in said
    scored = pq.read_table(output).to_pydict()
    assert scored["reader"] == [row["reader"] for row in rows]
    expected = model.predict(dataset, batch_size=16)
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(scored["scores"], expected, atol=1e-5)


def test_bad_rows_are_fatal_or_counted(exported, tmp_path):
    source = tmp_path / "events.jsonl"
    good = json.dumps({"reader": 1, "history": [2], "candidates": [3, 4]})
    source.write_text(f"{good}\nbad\n{good}\n")
    arguments = ["--input", source, "--output", tmp_path / "scores.jsonl"]
    with pytest.raises(MerlinSimError, match="events.jsonl, line 2: expected one JSON object"):
        run("score", exported, *arguments)
    said = run("score", exported, *arguments, "--on_bad_rows", "skip")
    assert "1 bad rows left out (line 2" in said and "2 events, 4 candidates" in said
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [line["line"] for line in lines] == [1, 3]
    with pytest.raises(MerlinSimError, match="--overwrite"):
        run("score", exported, *arguments)
    source.write_text(json.dumps({"reader": 1, "history": [2], "candidates": [3, 4_000]}))
    said = run("score", exported, *arguments, "--overwrite")
    assert "0 users and 1 candidates were not" in said


def test_an_example_of_ids_is_scored(exported, tmp_path):
    line = run("score", exported, "--example")
    assert json.loads(line) == {"reader": 1, "history": [1, 2, 3], "candidates": [{"book": 4}, 5]}
    (tmp_path / "event.jsonl").write_text(line)
    files = ["--input", tmp_path / "event.jsonl", "--output", tmp_path / "scores.jsonl"]
    assert "1 events, 2 candidates" in run("score", exported, *files)
    for wrong in (["--example", *files], files[:2], []):
        assert answer("score", exported, *wrong).returncode == 2


def test_a_repository_for_triton_from_both(dataset, trained, exported, tmp_path):
    arguments = ["--load_checkpoint_path", trained[1], "--dataset_dir", dataset.path]
    run("export", "--format", "triton", *arguments, "--output", tmp_path / "one")
    run("export", "--format", "triton", "--servable", exported, "--output", tmp_path / "two")
    listed = [
        sorted(str(path.relative_to(root)) for path in root.rglob("config.pbtxt"))
        for root in (tmp_path / "one", tmp_path / "two")
    ]
    assert listed[0] == listed[1]
    assert len(listed[0]) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_what_goes_together_is_checked(dataset, trained, exported, tmp_path):
    output = ["--output", tmp_path / "out"]
    checkpoint = ["--load_checkpoint_path", trained[1]]
    for arguments in ([], checkpoint, ["--dataset_dir", dataset.path]):
        with pytest.raises(MerlinSimError, match="--load_checkpoint_path and --dataset_dir"):
            run("export", *arguments, *output)
    with pytest.raises(MerlinSimError, match="`--servable` goes with --format triton"):
        run("export", "--servable", exported, *output)
    for lost in (dataset.path, trained[1], trained[1].parent):
        arguments = [*checkpoint, "--dataset_dir", dataset.path, "--output", lost, "--overwrite"]
        with pytest.raises(MerlinSimError, match="holds nothing of what is read"):
            run("export", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_dataset_is_refused(dataset, trained, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(dataset.path, other)
    table = pq.read_table(other / "test.parquet")
    pq.write_table(table.slice(1), other / "test.parquet")
    arguments = ["--load_checkpoint_path", trained[1], "--dataset_dir", other]
    with pytest.raises(MerlinSimError, match="is of another dataset"):
        run("export", *arguments, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_checkpoint_stops(dataset, tmp_path):
    arguments = ["--load_checkpoint_path", tmp_path / "none", "--dataset_dir", dataset.path]
    with pytest.raises(MerlinSimError, match="holds no checkpoint"):
        run("export", *arguments, "--output", tmp_path / "out")


def test_a_damaged_servable_is_refused(exported, tmp_path):
    shutil.copytree(exported, tmp_path / "copy")
    with open(tmp_path / "copy" / "model" / "saved_model.pb", "ab") as file:
        file.write(b"x")
    (tmp_path / "events.jsonl").write_text("")
    arguments = ["--input", tmp_path / "events.jsonl", "--output", tmp_path / "scores.jsonl"]
    for command in (["score", tmp_path / "copy", *arguments], ["serve", tmp_path / "copy"]):
        with pytest.raises(MerlinSimError, match="not as it was exported"):
            run(*command)
