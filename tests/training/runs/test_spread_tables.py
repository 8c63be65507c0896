"""Tables that are spread over real ranks train as those of one process, however they are cut."""

from __future__ import annotations

import json

import numpy as np
import pytest
import spread_worker
from in_process import run as run_here
from processes import BIN, entries, horovodrun, run
from ranking_rows import write_ranking_dataset
from warm import warm

from merlin_sim.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.foundation.ranks import Ranks

pytestmark = [pytest.mark.slow, pytest.mark.horovod]
RANKS = 4
MODEL = ["--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return folder, spread_worker.train_all(Ranks(), folder)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """With four ranks and three tables one rank owns nothing, where tables stay whole."""
    folder = tmp_path_factory.mktemp("together")
    words = [*horovodrun(RANKS), *warm(spread_worker.__file__, str(folder))]
    done = run(words, seconds=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder, json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("case", spread_worker.CASES, ids=lambda case: case.name)
def test_fifty_steps_are_those_of_one_process(case, alone, together):
    (one, expected), (many, found) = alone, together
    for what in ("losses", "logits"):
        np.testing.assert_allclose(
            found[case.name][what], expected[case.name][what], rtol=1e-4, atol=1e-5
        )
    ours = CheckpointStore(many / case.name).load().arrays
    theirs = CheckpointStore(one / case.name).load().arrays
    assert set(ours) == set(theirs)
    for name in theirs:
        scale = max(1e-6, float(np.abs(theirs[name]).max()))
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=0, atol=2e-4 * scale, err_msg=name
        )


def test_what_is_spread_is_written_by_the_ranks_that_have_it(together):
    folder, _ = together
    assert len(list((folder / "whole-sgd").glob("step-*/arrays*.npz"))) > 1


def test_a_run_goes_on_with_other_ranks_and_another_plan(tmp_path):
    """Two ranks with tables cut by columns stop; one process with whole tables goes on."""
    dataset = write_ranking_dataset(tmp_path / "dataset", rows=501)
    common = ["--dataset_dir", str(dataset), "--model_type", "dlrm", *MODEL, "--epochs", "2"]
    common += ["--global_batch_size", "100", "--seed", "3", "--lr", "0.05"]
    common += ["--affinity", "disabled"]
    spread, saved = ["--tables", "spread"], str(tmp_path / "saved")
    run_here("train", *common, *spread, "--results_dir", tmp_path / "whole")
    begun = [*common, *spread, "--cut", "columns", "--max_steps", "8"]
    begun += ["--save_checkpoint_path", saved, "--results_dir", str(tmp_path / "begun")]
    done = run([*horovodrun(2), *warm(str(BIN / "merlin-sim"), "train", *begun)], seconds=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    run_here("train", *common, "--load_checkpoint_path", saved, "--results_dir", tmp_path / "ended")
    losses = [
        {entry["step"]: entry["total_loss"] for entry in entries(tmp_path / name, "step")}
        for name in ("whole", "ended")
    ]
    assert list(losses[0]) == list(range(1, 13)) and list(losses[1]) == list(range(9, 13))
    for step, loss in losses[1].items():
        assert loss == pytest.approx(losses[0][step], rel=1e-4)
    aucs = [entries(tmp_path / name, "result")[-1]["test_auc"] for name in ("whole", "ended")]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)
