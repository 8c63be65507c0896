"""Which checkpoint of a directory is used, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.checkpoints.array_part import whole
from merlin_sim.checkpoints.checkpoint_store import CheckpointError, CheckpointStore
from merlin_sim.checkpoints.choice import choose_checkpoint

WEIGHTS = list(whole({"w": np.zeros(3, np.float32)}))
AUCS = {10: 0.6, 20: 0.7, 30: 0.5}


def saved(directory, facts, aucs=AUCS):
    for steps, auc in aucs.items():
        CheckpointStore(directory, keep=9).save(steps, facts, WEIGHTS, auc)
    return directory


def chosen(directory, *step):
    said = []
    return choose_checkpoint(directory, *step, say=said.append).facts["steps"], "\n".join(said)


@pytest.mark.parametrize("mapping", ["validation", "test"])
def test_the_best_is_taken_by_what_the_run_chose_by(tmp_path, mapping):
    steps, said = chosen(saved(tmp_path, {"auc_of": mapping}))
    assert steps == 20
    assert said == (
        f"{tmp_path}/step-0000000020: step 20, the best by AUC of {mapping} data (0.7000); the "
        "newest is step 30"
    )


@pytest.mark.parametrize("facts", [{"auc_of": None}, {}], ids=["newest", "earlier version"])
def test_the_newest_is_taken_where_the_run_chose_none(tmp_path, facts):
    steps, said = chosen(saved(tmp_path, facts))
    assert steps == 30 and "step 30, the newest: its run chose no best one" in said


def test_a_checkpoint_of_an_earlier_version_with_validation_data_is_judged_by_them(tmp_path):
    facts = {"best": {"metrics": {"validation_auc": 0.7}}}
    assert chosen(saved(tmp_path, facts))[0] == 20


def test_the_newest_and_a_step_can_be_asked_for(tmp_path):
    saved(tmp_path, {"auc_of": "validation"})
    assert chosen(tmp_path, "newest")[0] == 30
    assert chosen(tmp_path, "10")[0] == 10
    assert chosen(tmp_path / "step-0000000010")[0] == 10
    assert chosen(tmp_path / "step-0000000010", "10")[0] == 10


def test_an_unknown_step_is_refused_with_those_that_are_there(tmp_path):
    saved(tmp_path, {"auc_of": "validation"})
    with pytest.raises(CheckpointError, match=r"that are there \(10, 20, 30\)\. Received: 15"):
        chosen(tmp_path, "15")
    with pytest.raises(CheckpointError, match=r"that are there \(10\)\. Received: 20"):
        chosen(tmp_path / "step-0000000010", "20")


def test_a_damaged_best_one_is_passed_over_for_the_next_best(tmp_path):
    saved(tmp_path, {"auc_of": "validation"})
    (tmp_path / "step-0000000020" / "arrays.npz").write_bytes(b"")
    steps, said = chosen(tmp_path)
    assert steps == 10 and "is damaged" in said and "step 10, the best by AUC" in said
