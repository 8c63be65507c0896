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
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import Interaction
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


def test_a_store_whose_users_have_other_keys_is_refused(exported, tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    source = tmp_path / "events.jsonl"
    source.write_text(json.dumps({"reader": 1, "candidates": [3]}))
    words = ["score", exported, "--histories", tmp_path / "store", "--input", source]
    run(*words, "--output", tmp_path / "of an empty store.jsonl")
    store.append([Interaction(f'"{number}"', "2") for number in range(9)])
    ended = answer(*words, "--output", tmp_path / "scores.jsonl")
    assert ended.returncode == 2
    assert "store: the users of the store: reader: expected a whole number, as" in ended.stderr
    store.append([Interaction("1", "2")])
    run(*words, "--output", tmp_path / "scores.jsonl")


def test_bad_rows_are_fatal_or_counted_an_example_is_scored_and_damage_is_refused(
    exported, tmp_path
):
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
    line = run("score", exported, "--example")
    assert json.loads(line) == {"reader": 1, "history": [1, 2, 3], "candidates": [{"book": 4}, 5]}
    source.write_text(line)
    assert "1 events, 2 candidates" in run("score", exported, *arguments, "--overwrite")
    for wrong in (["--example", *arguments], arguments[:2], []):
        assert answer("score", exported, *wrong).returncode == 2
    shutil.copytree(exported, tmp_path / "copy")
    with open(tmp_path / "copy" / "model" / "saved_model.pb", "ab") as file:
        file.write(b"x")
    score = ["score", tmp_path / "copy", *arguments, "--overwrite"]
    for command in (score, ["serve", tmp_path / "copy"]):
        with pytest.raises(MerlinSimError, match="not as it was exported"):
            run(*command)


def test_a_repository_for_triton_from_both(dataset, trained, exported, tmp_path):
    arguments = ["--load_checkpoint_path", trained[1], "--dataset_dir", dataset.path]
    run("export", "--format", "triton", *arguments, "--step", 7, "--output", tmp_path / "one")
    run("export", "--format", "triton", "--servable", exported, "--output", tmp_path / "two")
    listed = [
        sorted(str(path.relative_to(root)) for path in root.rglob("config.pbtxt"))
        for root in (tmp_path / "one", tmp_path / "two")
    ]
    assert listed[0] == listed[1]
    assert len(listed[0]) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_what_cannot_be_exported_is_refused(dataset, trained, exported, tmp_path):
    output = ["--output", tmp_path / "out"]
    checkpoint, data = ["--load_checkpoint_path", trained[1]], ["--dataset_dir", dataset.path]
    other = shutil.copytree(dataset.path, tmp_path / "other")
    pq.write_table(pq.read_table(other / "test.parquet").slice(1), other / "test.parquet")
    together = "--load_checkpoint_path and --dataset_dir"
    apart = "holds nothing of what is read"
    for words, said in [
        ([*output], together),
        ([*checkpoint, *output], together),
        ([*data, *output], together),
        (["--servable", exported, *output], "`--servable` goes with --format triton"),
        ([*checkpoint, *data, "--output", dataset.path, "--overwrite"], apart),
        ([*checkpoint, *data, "--output", trained[1], "--overwrite"], apart),
        ([*checkpoint, *data, "--output", trained[1].parent, "--overwrite"], apart),
        ([*checkpoint, "--dataset_dir", other, *output], "is of another dataset"),
        (["--load_checkpoint_path", tmp_path / "none", *data, *output], "holds no checkpoint"),
        ([*checkpoint, *data, "--step", 8, *output], r"that are there \(.*7\)\. Received: 8"),
    ]:
        with pytest.raises(MerlinSimError, match=said):
            run("export", *words)
    assert not (tmp_path / "out").exists()
