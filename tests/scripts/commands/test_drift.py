"""`merlin-sim drift`: two datasets of the same ids."""

from __future__ import annotations

import json

import numpy as np
import pytest
from grown_dataset import write_keyed_dataset
from in_process import answer

from merlin_sim.training.evaluation.scored_rows import TEST_SCORES, ScoredRows


@pytest.fixture(scope="module")
def place(tmp_path_factory):
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


def drift(place, reference, new, *more):
    return answer("drift", place / reference, place / new, "--output", place / "out", *more)


def test_the_same_data_have_not_drifted(place):
    found = drift(place, "old", "old")
    assert found.returncode == 0 and "nothing has drifted" in found.stdout, found.stderr
    document = json.loads((place / "out/drift.json").read_text())
    assert document["drifted"] == [] and document["reference"] == document["new"]
    assert (place / "out/drift.html").is_file() and (place / "out/distances.png").is_file()


def test_ids_that_came_are_drift_beyond_the_bound(place):
    found = drift(place, "old", "grown")
    assert found.returncode == 1, found.stderr
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("thing  ")]
    assert "20.00%" in line and "unknown 0.0% to 20.0%" in line
    document = json.loads((place / "out/drift.json").read_text())
    by_feature = {finding["feature"]: finding for finding in document["findings"]}
    assert by_feature["thing"]["new_unknown"] == pytest.approx(0.2)
    assert not by_feature["thing_seen"]["new_unknown"]
    wide = ["--psi", 9, "--ks", 1, "--unknown", 1, "--label_rate", 1]
    assert drift(place, "old", "grown", *wide).returncode == 0
    found = drift(place, "old", "grown", *wide[:4], "--leave_out", "who,thing,kind")
    assert found.returncode == 0 and "\nwho" not in found.stdout


def test_scores_of_runs_are_compared(place):
    given = ["--reference_scores", place / "low", "--new_scores", place / "high"]
    found = drift(place, "old", "old", *given)
    assert found.returncode == 1 and "drifted: score\n" in found.stdout
    assert "KS 1.000" in found.stdout


def test_what_cannot_be_compared_is_refused(place):
    for arguments, said in (
        (["old", "other"], "thing: the first 60 keys of"),
        (["grown", "old"], "its ids should end at 69 or later"),
        (["old", "old", "--mapping", "tomorrow"], "no mapping 'tomorrow'"),
        (["old", "old", "--leave_out", "price"], "`leave_out` should name columns"),
        (["old", "old", "--new_scores", place / "low"], "belong together"),
        (
            ["old", "old", "--new_scores", place / "low", "--reference_scores", place / "old"],
            "expected test_scores.parquet",
        ),
    ):
        found = drift(place, *arguments)
        assert found.returncode == 2 and said in found.stderr, found.stderr
