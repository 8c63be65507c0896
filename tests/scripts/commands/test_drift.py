"""`merlin-sim drift`: two datasets of the same ids."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from grown_dataset import write_keyed_dataset
from in_process import answer

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.known_keys import note_of
from merlin_sim.serving.encoder import EncodedEvent
from merlin_sim.serving.request_log import RequestLog
from merlin_sim.serving.settings import LogSettings
from merlin_sim.training.evaluation.scored_rows import TEST_SCORES, ScoredRows

EITHER = "either --dataset_dir or --requests"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("drift")
    write_keyed_dataset(root / "old")
    write_keyed_dataset(root / "grown", grown=True)
    write_keyed_dataset(root / "other", grown=True, order=-1)
    users = np.repeat(np.arange(20), 5)
    for name, scores in (("low", 0.2), ("high", 0.7)):
        (root / name).mkdir()
        values = np.linspace(scores, scores + 0.1, 100).astype(np.float32)
        ScoredRows(users, users % 2 == 0, values).write(root / name / TEST_SCORES)
    return root


def drift(folder, reference, new, *more):
    datasets = ["--reference", folder / reference, "--dataset_dir", folder / new]
    return answer("drift", *datasets, "--output", folder / "out", *more)


@pytest.mark.slow
def test_the_same_data_have_not_drifted_and_other_scores_have(folder):
    found = drift(folder, "old", "old")
    assert found.returncode == 0 and "nothing has drifted" in found.stdout, found.stderr
    document = json.loads((folder / "out/drift.json").read_text())
    assert document["drifted"] == [] and document["reference"] == document["new"]
    assert (folder / "out/drift.html").is_file() and (folder / "out/distances.png").is_file()
    given = ["--reference_scores", folder / "low", "--new_scores", folder / "high"]
    found = drift(folder, "old", "old", *given)
    assert found.returncode == 1 and "drifted: score\n" in found.stdout
    assert "KS 1.000" in found.stdout


@pytest.mark.slow
def test_ids_that_came_are_drift_beyond_the_bound(folder):
    found = drift(folder, "old", "grown")
    assert found.returncode == 1, found.stderr
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("thing  ")]
    assert "20.00%" in line and "unknown 0.0% to 20.0%" in line
    document = json.loads((folder / "out/drift.json").read_text())
    by_feature = {finding["feature"]: finding for finding in document["findings"]}
    assert by_feature["thing"]["new_unknown"] == pytest.approx(0.2)
    assert not by_feature["thing_seen"]["new_unknown"]
    wide = ["--psi", 9, "--ks", 1, "--unknown", 1, "--label_rate", 1]
    found = drift(folder, "old", "grown", *wide, "--leave_out", "who")
    assert found.returncode == 0 and "\nwho" not in found.stdout and "\nthing" in found.stdout


@pytest.fixture
def logged(folder, tmp_path):
    """Requests as the rows of the first dataset have them; then some of another taste."""

    def log(things, users_hashed=False, ids="old"):
        opened = DatasetDirectory.open(folder / ids)
        kept = RequestLog(LogSettings(tmp_path, 1.0, 64, users_hashed), 7, note_of(opened))
        rows = pq.read_table(folder / "old/train/part.0.parquet").to_pydict()
        for i, thing in enumerate(things(rows["thing"])):
            one = EncodedEvent(
                {"who": np.array([rows["who"][i]])},
                {"thing": np.array([thing]), "kind": np.array([rows["kind"][i]])},
                {n: np.array(rows[n][i]) for n in ("thing_seen", "kind_seen")},
                ("who",),
            )
            kept.add([one], [np.float32([0.25])])
        kept.close()
        return tmp_path

    return log


def test_requests_as_in_training_have_not_drifted(folder, logged):
    wide = ["--psi", 0.5]  # 150 rows of 240 are a sample
    requests = ["--requests", logged(lambda things: things, users_hashed=True)]
    found = answer(
        "drift", "--reference", folder / "old", *requests, *wide, "--output", folder / "out"
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "users were hashed, and are not compared" in found.stdout
    document = json.loads((folder / "out/drift.json").read_text())
    by_feature = {finding["feature"]: finding for finding in document["findings"]}
    assert set(by_feature) == {"thing", "kind", "thing_seen", "kind_seen", "history"}
    assert by_feature["thing"]["new"] == 150 and document["new"]["versions"] == [7]


@pytest.mark.slow
def test_requests_for_what_nobody_knows_are_drift(folder, logged):
    requests = ["--requests", logged(lambda things: [0, *things[1:75], *([0] * 75)])]
    given = ["--reference_scores", folder / "high"]
    found = answer(
        "drift", "--reference", folder / "old", *requests, *given, "--output", folder / "out"
    )
    assert found.returncode == 1, found.stderr
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("thing  ")]
    assert "unknown 0.0% to 50.7%" in line
    assert "\nscore" in found.stdout and "KS 1.000" in found.stdout
    assert "\nwho" in found.stdout and "\nlabel" not in found.stdout


def test_requests_that_cannot_be_compared_are_refused(folder, logged, tmp_path):
    requests = logged(lambda things: things, ids="grown")
    for arguments, said in (
        ([folder / "old", "--requests", requests], "should be the dataset that version 7 was"),
        ([folder / "grown", "--requests", folder], "expected logged requests"),
        ([folder / "old", "--dataset_dir", folder / "old", "--requests", requests], EITHER),
        ([folder / "old"], EITHER),
        ([folder / "grown", "--requests", requests, "--new_scores", folder / "low"], "no --new_sc"),
        ([folder / "grown", "--requests", requests, "--leave_out", "x"], "`leave_out` should name"),
    ):
        found = answer("drift", "--reference", *arguments, "--output", tmp_path / "out")
        assert found.returncode == 2 and said in found.stderr, found.stderr


def test_what_cannot_be_compared_is_refused(folder):
    for arguments, said in (
        (["old", "other"], "thing: the first 60 keys of"),
        (["grown", "old"], "its ids should end at 69 or later"),
        (["old", "old", "--mapping", "tomorrow"], "no mapping 'tomorrow'"),
        (["old", "old", "--leave_out", "price"], "`leave_out` should name columns"),
        (["old", "old", "--new_scores", folder / "low"], "belong together"),
        (
            ["old", "old", "--new_scores", folder / "low", "--reference_scores", folder / "old"],
            "expected test_scores.parquet",
        ),
    ):
        found = drift(folder, *arguments)
        assert found.returncode == 2 and said in found.stderr, found.stderr
