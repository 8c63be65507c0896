"""`merlin-sim gate`: two models on the rows of a third dataset."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from in_process import answer, run
from ranking_rows import write_ranking_dataset

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fingerprint import fingerprint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def models(save_checkpoint, dataset, tmp_path_factory) -> dict[str, Path]:
    """Two models' checkpoints, an export of the first, and a results directory of the other."""
    _, one = save_checkpoint("din", embedding_dim=4)
    _, other = save_checkpoint("din", embedding_dim=4, stage_two_mlp_dims=(8,))
    made = tmp_path_factory.mktemp("models")
    arguments = ["--load_checkpoint_path", one, "--dataset_dir", dataset.path]
    run("export", *arguments, "--output", made / "servable")
    (made / "run").mkdir()
    config = yaml.safe_dump({"save_checkpoint_path": str(other)})
    (made / "run/config.yaml").write_text(config)
    return {"one": one, "servable": made / "servable", "run": made / "run"}


def gate(models, challenger, current, dataset, output, *more):
    pair = ["--challenger", models[challenger], "--current", models[current]]
    where = ["--dataset_dir", dataset, "--output", output]
    return answer("gate", *pair, *where, "--least_users", 1, *more)


def test_an_export_is_as_good_as_its_checkpoint(models, grown, tmp_path):
    found = gate(models, "servable", "one", grown, tmp_path / "out", "--margin", 0)
    # Float rounding alone tells them apart, and a margin of 0 allows for none.
    assert found.returncode in (0, 1), found.stderr
    document = json.loads((tmp_path / "out/gate.json").read_text())
    by_segment = {(j["segment"], j["measure"]): j for j in document["judgements"]}
    assert all(abs(j["difference"]) < 1e-3 for j in by_segment.values() if j["difference"])
    assert by_segment["all rows", "log_loss"]["difference"] == pytest.approx(0, abs=1e-6)
    assert by_segment["all rows", "auc"]["rows"] == 90
    table = pq.read_table(grown / "test.parquet").to_pydict()
    new_items = sum(book > 30 for book in table["book"])
    new_users = sum(reader > 9 for reader in table["reader"])
    long = sum(len(read) >= 4 for read in table["read"])
    assert by_segment["new items", "auc"]["rows"] == new_items > 0
    assert by_segment["new users", "auc"]["rows"] == new_users > 0
    assert by_segment["long histories", "auc"]["rows"] == long > 0
    for side in ("challenger", "current"):
        assert document[side]["checkpoint"] == "step-0000000007"
    one, other = document["challenger"], document["current"]
    assert one["checkpoint_sha256"] == other["checkpoint_sha256"]


def test_a_challenger_that_may_be_worse_does_not_pass(models, grown, tmp_path):
    out = tmp_path / "out"
    found = gate(models, "run", "one", grown, out, "--margin", 0, "--long_history", 8)
    assert found.returncode == 1 and "\nnot passed\n" in found.stdout
    assert "of all rows" in found.stdout and "favours" not in found.stderr
    document = json.loads((out / "gate.json").read_text())
    assert document["passed"] is False and document["long_from"] == 8


def test_what_cannot_be_compared_is_refused(models, dataset, grown, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "unsaved").mkdir()
    (tmp_path / "unsaved/config.yaml").write_text("save_checkpoint_path: null\n")
    more = {**models, "empty": tmp_path / "empty", "unsaved": tmp_path / "unsaved"}
    for challenger, said in (
        ("empty", "expected an exported model, a directory of checkpoints, or a run's"),
        ("unsaved", "is of a run without --save_checkpoint_path"),
    ):
        found = gate(more, challenger, "one", grown, tmp_path / "out")
        assert found.returncode == 2 and said in found.stderr
    for words, said in (
        (["--mapping", "tomorrow"], "no mapping 'tomorrow'"),
        (["--margin", -1], ""),
    ):
        found = gate(models, "one", "one", grown, tmp_path / "out", *words)
        assert found.returncode == 2 and said in found.stderr
    keys = pa.table({"id": np.arange(1, 41), "key": [f"book {n}" for n in range(40)]})
    other = shutil.copytree(grown, tmp_path / "other")
    (other / "categories").mkdir()
    pq.write_table(keys, other / "categories/book.parquet")  # ids that mean something else
    found = gate(models, "servable", "servable", other, tmp_path / "out")
    assert found.returncode == 2
    assert "preprocess it with the vocabularies of the model's dataset" in found.stderr
    assert "book: ids are keys in what is known" in found.stderr
    assert not (tmp_path / "out").exists()


def test_rows_that_trained_the_challenger_are_refused(models, dataset, tmp_path):
    out, wide = tmp_path / "out", ["--mapping", "train", "--margin", 1]
    found = gate(models, "one", "run", dataset.path, out, *wide)
    assert found.returncode == 2 and not out.exists()
    assert "expected rows that did not train the challenger" in found.stderr
    assert "'train'" in found.stderr and "--force" in found.stderr
    found = gate(models, "one", "run", dataset.path, out, *wide, "--force")
    assert found.returncode == 0 and "\npassed\n" in found.stdout, found.stderr
    assert "the verdict favours the challenger" in found.stderr
    assert json.loads((out / "gate.json").read_text())["challenger"]["trained_on_these_rows"]


def test_rows_of_a_replayed_dataset_trained_the_challenger(dataset, save_checkpoint, tmp_path):
    newer = tmp_path / "newer"
    shutil.copytree(dataset.path, newer)
    table = pq.read_table(newer / "train.parquet")
    pq.write_table(table.slice(5), newer / "train.parquet")
    replay = {"dataset": fingerprint(dataset), "rows": 2}  # as a run notes it
    opened = DatasetDirectory.open(newer)
    _, saved = save_checkpoint("din", of=opened, order={"replay": replay}, embedding_dim=4)
    where = ["--load_checkpoint_path", saved, "--dataset_dir", newer]
    run("export", *where, "--output", tmp_path / "servable")
    models = {"run": saved, "servable": tmp_path / "servable"}
    for challenger in models:
        found = gate(
            models, challenger, "run", dataset.path, tmp_path / "out", "--mapping", "train"
        )
        assert found.returncode == 2
        assert "expected rows that did not train the challenger" in found.stderr


def test_rows_of_click_logs_stand_for_themselves(save_checkpoint, tmp_path):
    """DLRM's rows have no user; of an unknown category the model reads id 0."""
    for name, sizes in (("old", (7, 40, 3)), ("grown", (9, 40, 3))):
        directory = write_ranking_dataset(tmp_path / name, 300, cardinalities=sizes)
        for file in (directory / "categories").glob("*.parquet"):
            file.unlink()
    small = {"embedding_dim": 4, "bottom_mlp_dims": (8, 4), "top_mlp_dims": (8, 1)}
    old = DatasetDirectory.open(tmp_path / "old", model="dlrm")
    _, saved = save_checkpoint("dlrm", of=old, **small)
    where = ["--load_checkpoint_path", saved, "--dataset_dir", tmp_path / "old"]
    run("export", *where, "--output", tmp_path / "servable")
    models = {"run": saved, "servable": tmp_path / "servable"}
    wide = ["--margin", 0.001]
    found = gate(models, "run", "servable", tmp_path / "grown", tmp_path / "out", *wide)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "rows are drawn instead" in found.stderr
    judged = json.loads((tmp_path / "out/gate.json").read_text())["judgements"]
    assert {entry["segment"] for entry in judged} == {"all rows"}
    assert judged[0]["rows"] == judged[0]["users"]
    assert abs(judged[1]["difference"]) < 1e-6
