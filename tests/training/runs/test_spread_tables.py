"""Tables that are spread over real ranks train as those of one process, however they are cut."""

from __future__ import annotations

import functools
import json

import commands_worker
import killed_rank_worker
import numpy as np
import pytest
import spread_worker
from in_process import run as run_here
from processes import BIN, entries, horovodrun, run
from ranking_rows import write_ranking_dataset
from warm import warm

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.horovod]
CASES = [case.name for case in spread_worker.CASES]
OF_RANKS = {2: CASES[1:], 4: CASES[::3]}
"""By the number of ranks, which cases they train: each cut with one number at least.

With four ranks and three tables one rank owns nothing, where tables stay whole.
"""
PAIRS = [
    pytest.param(ranks, case, id=f"{case}-{ranks} ranks")
    for ranks, cases in OF_RANKS.items()
    for case in cases
]
MODEL = ["--embedding_dim", "8", "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return folder, spread_worker.train_all(Ranks(), folder, CASES)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What so many ranks make of their cases; they start once."""

    @functools.cache
    def launch(ranks):
        folder = tmp_path_factory.mktemp("together")
        words = warm(spread_worker.__file__, str(folder), *OF_RANKS[ranks])
        done = run([*horovodrun(ranks), *words], seconds=280)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return folder, json.loads((folder / "report.json").read_text())

    return launch


@pytest.mark.parametrize("ranks, case", PAIRS)
def test_fifty_steps_are_those_of_one_process(ranks, case, alone, together):
    (one, expected), (many, found) = alone, together(ranks)
    for what in ("losses", "logits", "auc"):
        np.testing.assert_allclose(found[case][what], expected[case][what], rtol=1e-4, atol=1e-5)
    ours = CheckpointStore(many / case).load().arrays
    theirs = CheckpointStore(one / case).load().arrays
    assert set(ours) == set(theirs)
    for name in theirs:
        scale = max(1e-6, float(np.abs(theirs[name]).max()))
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=0, atol=2e-4 * scale, err_msg=name
        )


def test_what_is_spread_is_written_by_the_ranks_that_have_it(together):
    folder, _ = together(4)
    assert len(list((folder / "whole-sgd").glob("step-*/arrays*.npz"))) > 1


SIM = ["--model_type", "sim", "--embedding_dim", "4", "--stage_one_mlp_dims", "8"]
SIM += ["--stage_two_mlp_dims", "8,4", "--aux_mlp_dims", "6", "--long_seq_length", "8"]
SIM += ["--top_k", "3"]


@pytest.fixture(scope="module")
def sim_runs(sim_dataset, tmp_path_factory):
    """SIM on one rank, and on two."""
    home = tmp_path_factory.mktemp("sim")

    def words(name: str, *more: str) -> list[str]:
        common = ["--global_batch_size", "30", "--epochs", "1", "--seed", "3", "--lr", "0.02"]
        common += ["--affinity", "disabled", "--save_checkpoint_path", str(home / name / "saved")]
        options = [*SIM, *common, "--tables", "spread", "--results_dir", str(home / name), *more]
        return ["train", "--dataset_dir", str(sim_dataset), *options]

    run_here(*words("alone"))
    cut = [words("together", "--cut", "rows")]
    launched = [*horovodrun(2), *warm(commands_worker.__file__, json.dumps(cut))]
    done = run(launched, seconds=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return home


def test_sim_with_spread_tables_trains_as_it_does_alone(sim_runs):
    alone, together = (
        [entry["total_loss"] for entry in entries(sim_runs / name, "step")]
        for name in ("alone", "together")
    )
    assert len(alone) == len(together) > 5
    np.testing.assert_allclose(together, alone, rtol=1e-4)
    aucs = [entries(sim_runs / name, "result")[-1]["test_auc"] for name in ("alone", "together")]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)
    theirs, ours = (
        CheckpointStore(sim_runs / name / "saved").load().arrays for name in ("alone", "together")
    )
    assert set(ours) == set(theirs)
    # A softmax takes this bias away. Its gradient is rounding alone, which Adam scales up, and
    # rounding depends on the processor: on some the two runs' biases differ by more than they are.
    before_softmax = "body/interest/activation_unit/dense/2/bias"
    assert max(abs(found[before_softmax]).max() for found in (ours, theirs)) < 1e-5
    for name in set(theirs) - {before_softmax}:
        scale = max(1e-3, float(np.abs(theirs[name]).max()))
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=0, atol=1e-3 * scale, err_msg=name
        )


def test_ranks_killed_while_they_write_together_lose_no_checkpoint(tmp_path):
    """Each time others go on: two ranks with columns, three with rows, one process alone."""
    dataset = write_ranking_dataset(tmp_path / "dataset", rows=501)
    common = ["--dataset_dir", str(dataset), "--model_type", "dlrm", *MODEL, "--epochs", "2"]
    common += ["--global_batch_size", "102", "--seed", "3", "--lr", "0.05", "--affinity"]
    common += ["disabled", "--optimizer", "lazy_adam"]
    run_here("train", *common, "--tables", "spread", "--results_dir", tmp_path / "whole")
    saved, results = tmp_path / "saved", tmp_path / "results"
    common += ["--results_dir", str(results), "--save_checkpoint_path", str(saved)]
    common += ["--checkpoint_every", "1"]
    load = ["--load_checkpoint_path", str(saved)]
    kills = [
        *((2, "columns", ["1", "3", "open"]), (2, "columns", ["1", "4", "fsync"])),
        (3, "rows", ["0", "7", "os.rename"]),
    ]
    for ranks, cut, kill in kills:
        words = ["train", *common, "--tables", "spread", "--cut", cut, *load * saved.exists()]
        launched = warm(killed_rank_worker.__file__, *kill, *words)
        done = run([*horovodrun(ranks), *launched], seconds=200)
        assert done.returncode != 0
        # Which of the ranks' ends the launcher sees first, it alone knows.
        assert f"[{kill[0]}]<stderr>:Killed" in done.stderr, done.stdout + done.stderr
        assert CheckpointStore(saved).names()[0] == f"step-{int(kill[1]) - 1:010d}"
        assert list(saved.glob(f".step-{int(kill[1]):010d}.*"))
    run_here("train", *common, *load)
    undisturbed, found = (
        {entry["step"]: entry["total_loss"] for entry in entries(folder, "step")}
        for folder in (tmp_path / "whole", results)
    )
    assert list(found) == list(undisturbed) == list(range(1, 11))
    np.testing.assert_allclose(list(found.values()), list(undisturbed.values()), rtol=1e-4)
    aucs = [entries(folder, "result")[-1]["test_auc"] for folder in (tmp_path / "whole", results)]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)
    assert not list(saved.glob(".step-*"))


def test_a_run_goes_on_with_other_ranks_and_another_plan(tmp_path):
    """Two ranks with columns of tables, compiled, stop; one process with whole tables goes on."""
    dataset = write_ranking_dataset(tmp_path / "dataset", rows=501)
    common = ["--dataset_dir", str(dataset), "--model_type", "dlrm", *MODEL, "--epochs", "2"]
    common += ["--global_batch_size", "100", "--seed", "3", "--lr", "0.05"]
    common += ["--affinity", "disabled"]
    spread, saved = ["--tables", "spread"], str(tmp_path / "saved")
    run_here("train", *common, *spread, "--results_dir", tmp_path / "whole")
    begun = [*common, *spread, "--cut", "columns", "--max_steps", "8", "--xla"]
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
