"""Runs on datasets with validation data: what is scored, kept and chosen by it."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from processes import entries

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.training.evaluation.best_so_far import BestSoFar
from merlin_sim.training.evaluation.evaluate import EvaluationResult
from merlin_sim.training.runs.run import run

pytestmark = pytest.mark.slow

PUBLISHED = EvaluationResult.published


@pytest.fixture
def config(small_run, validated, tmp_path):
    def make(**changes):
        saved = {"dataset_dir": validated, "save_checkpoint_path": tmp_path / "saved"}
        return small_run(**{**saved, **changes})

    return make


def aucs_of_validation(monkeypatch, aucs, of="validation"):
    """Let evaluations of validation data, or of others, have these AUCs, one after the other."""
    given = iter(aucs)

    def metrics(evaluation, names, mapping="test"):
        found = PUBLISHED(evaluation, names, mapping)
        return {**found, f"{of}_auc": next(given)} if mapping == of else found

    monkeypatch.setattr(EvaluationResult, "published", metrics)


def test_validation_data_is_scored_beside_test_data(config, tmp_path, capfd):
    result = run(config(epochs=2, lr=0.02))
    epochs = entries(tmp_path / "results", "epoch")
    best = max(epochs, key=lambda entry: entry["validation_auc"])
    for entry in epochs:
        assert entry["validation_auc"] != entry["test_auc"]
        assert entry["validation_log_loss"] > 0
    assert result["best_step"] == best["step"]
    assert result["best_test_auc"] == best["test_auc"]
    assert result["best_validation_auc"] == best["validation_auc"]
    assert f"best by validation data: step {best['step']}  " in capfd.readouterr().out


def test_the_checkpoint_best_on_validation_data_stays(config, tmp_path, monkeypatch, capfd):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5, 0.4])
    run(config(epochs=4, keep_checkpoints=1))
    store = CheckpointStore(tmp_path / "saved")
    assert store.names() == ["step-0000000020", "step-0000000010"]
    assert store.best() == "step-0000000010"
    assert f"kept as {tmp_path / 'saved'}/step-0000000010" in capfd.readouterr().out


@pytest.mark.parametrize("every", [None, 3])
def test_the_checkpoint_best_within_an_epoch_stays(config, tmp_path, monkeypatch, capfd, every):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5])
    run(config(epochs=1, evals_per_epoch=3, keep_checkpoints=1, checkpoint_every=every))
    store = CheckpointStore(tmp_path / "saved")
    assert store.names() == ["step-0000000005", "step-0000000003"]
    assert store.best() == "step-0000000003"
    assert f"kept as {tmp_path / 'saved'}/step-0000000003" in capfd.readouterr().out


@pytest.mark.parametrize(
    "select_by, kept, best, said",
    [
        (None, ["step-0000000020"], None, None),
        (
            "test",
            ["step-0000000020", "step-0000000010"],
            "step-0000000010",
            "best by test data, as --select_by test asks: kept as ",
        ),
    ],
)
def test_test_data_choose_no_checkpoint_unless_asked_to(
    config, sim_dataset, tmp_path, monkeypatch, capfd, select_by, kept, best, said
):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5, 0.4], of="test")
    run(config(dataset_dir=sim_dataset, epochs=4, keep_checkpoints=1, select_by=select_by))
    store = CheckpointStore(tmp_path / "saved")
    assert (store.names(), store.best()) == (kept, best)
    reported = capfd.readouterr().out
    assert said in reported if said else "best" not in reported


def test_inference_scores_the_checkpoint_that_is_best_on_validation_data(
    config, tmp_path, monkeypatch, capfd
):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5])
    run(config(epochs=3))
    aucs = {e["step"]: e["test_auc"] for e in entries(tmp_path / "results", "epoch")}
    options = {"mode": "inference", "load_checkpoint_path": tmp_path / "saved"}
    options["results_dir"] = tmp_path / "scored"
    for step, expected in (("best", 10), ("newest", 15), ("5", 5)):
        assert run(config(**options, step=step))["test_auc"] == aucs[expected]
    said = capfd.readouterr().out
    assert "step 10, the best by AUC of validation data (0.7000); the newest is step 15" in said
    with pytest.raises(MerlinSimError, match=r"that are there \(5, 10, 15\)\. Received: 7"):
        run(config(**options, step="7"))


def test_validation_data_choose_nothing_where_the_newest_is_asked_for(
    config, tmp_path, monkeypatch, capfd
):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5])
    run(config(epochs=3, keep_checkpoints=1, select_by="newest"))
    assert CheckpointStore(tmp_path / "saved").names() == ["step-0000000015"]
    reported = capfd.readouterr().out
    assert "best by validation data: step 10" in reported and "kept as" not in reported


def test_a_choice_by_validation_data_needs_them(config, sim_dataset):
    with pytest.raises(MerlinSimError, match="select_by validation needs validation data, and"):
        run(config(dataset_dir=sim_dataset, select_by="validation"))


def test_training_ends_where_nothing_gets_better(config, tmp_path, monkeypatch, capfd):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.7, 0.65])
    result = run(config(epochs=9, early_stopping=2))
    assert [entry["step"] for entry in entries(tmp_path / "results", "epoch")] == [5, 10, 15, 20]
    assert result["best_step"] == 10
    said = capfd.readouterr().out
    assert "2 evaluations in a row were no better than that after step 10" in said
    # Going on trains nothing more, and evaluates.
    aucs_of_validation(monkeypatch, [0.65])
    again = config(
        epochs=9,
        early_stopping=2,
        load_checkpoint_path=tmp_path / "saved",
        results_dir=tmp_path / "again",
    )
    run(again)
    assert not entries(tmp_path / "again", "step")
    assert entries(tmp_path / "again", "result")[0]["best_step"] == 10


def test_a_run_that_goes_on_counts_on(config, tmp_path, monkeypatch, capfd):
    aucs_of_validation(monkeypatch, [0.7, 0.6])
    run(config(epochs=2, early_stopping=3))
    aucs_of_validation(monkeypatch, [0.6, 0.5])
    capfd.readouterr()
    goes_on = {"load_checkpoint_path": tmp_path / "saved", "save_checkpoint_path": tmp_path / "new"}
    run(config(epochs=9, early_stopping=3, **goes_on))
    assert entries(tmp_path / "results", "epoch")[-1]["step"] == 20
    said = capfd.readouterr().out  # of the best checkpoint, which is in the first place
    assert "best by validation data: step 5 " in said and "kept as" not in said


def test_training_may_end_within_an_epoch(config, tmp_path, monkeypatch):
    aucs_of_validation(monkeypatch, [0.7, 0.6])
    run(config(epochs=2, evals_per_epoch=3, early_stopping=1))
    found = entries(tmp_path / "results", "evaluation")
    assert [entry["step"] for entry in found] == [2, 3]  # reported once each, and scored once each
    assert not entries(tmp_path / "results", "epoch")
    names = CheckpointStore(tmp_path / "saved").names()
    assert names == ["step-0000000003", "step-0000000002"]


def test_early_stopping_needs_validation_data(config, sim_dataset):
    with pytest.raises(MerlinSimError, match="early_stopping needs validation data, and there"):
        run(config(dataset_dir=sim_dataset, early_stopping=2))


def test_a_checkpoint_keeps_what_was_best():
    best = BestSoFar()
    best.take(5, {"validation_auc": 0.5, "test_auc": 0.4})
    best.take(9, {"validation_auc": None, "test_auc": 0.9})  # of one kind of label only
    best.take(9, {"validation_auc": 0.5, "test_auc": 0.9})
    assert BestSoFar(**asdict(best)) == best
    assert (best.steps, best.no_better) == (5, 1)
