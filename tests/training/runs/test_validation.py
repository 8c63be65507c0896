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
    """An epoch is one step."""

    def make(**changes):
        indices = {"dataset_dir": validated, "save_checkpoint_path": tmp_path / "saved"}
        return small_run(**{**indices, "global_batch_size": 300, **changes})

    return make


def aucs_of_validation(monkeypatch, aucs, of="validation"):
    """Let evaluations of validation data, or of others, have these AUCs, one after the other."""
    given = iter(aucs)

    def metrics(evaluation, names, mapping="test"):
        found = PUBLISHED(evaluation, names, mapping)
        return {**found, f"{of}_auc": next(given)} if mapping == of else found

    monkeypatch.setattr(EvaluationResult, "published", metrics)


def test_the_checkpoint_best_on_validation_data_stays_and_is_scored(
    config, tmp_path, monkeypatch, capfd
):
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5, 0.4])
    result = run(config(epochs=4, keep_checkpoints=1, lr=0.05))
    store = CheckpointStore(tmp_path / "saved")
    assert store.names() == ["step-0000000004", "step-0000000002"]
    assert store.best() == "step-0000000002"
    said = capfd.readouterr().out
    assert f"kept as {tmp_path / 'saved'}/step-0000000002" in said
    assert "best by validation data: step 2  " in said
    epochs = {entry["step"]: entry for entry in entries(tmp_path / "results", "epoch")}
    for entry in epochs.values():  # of other rows than those of test
        assert 0 < entry["validation_log_loss"] != entry["test_log_loss"]
    aucs = {step: entry["test_auc"] for step, entry in epochs.items()}
    assert aucs[2] != aucs[4]
    assert (result["best_step"], result["best_validation_auc"]) == (2, 0.7)
    assert result["best_test_auc"] == aucs[2]
    options = {"mode": "inference", "load_checkpoint_path": tmp_path / "saved"}
    options["results_dir"] = tmp_path / "scored"
    for step, expected in (("best", 2), ("newest", 4)):
        assert run(config(**options, step=step))["test_auc"] == aucs[expected]
    said = capfd.readouterr().out
    assert "step 2, the best by AUC of validation data (0.7000); the newest is step 4" in said


def test_the_checkpoint_best_within_an_epoch_stays_and_training_may_end_within_one(
    config, tmp_path, monkeypatch, capfd
):
    """The best one is due for two reasons: it was scored, and three steps have passed."""
    aucs_of_validation(monkeypatch, [0.6, 0.7, 0.5, 0.4])
    within = {"global_batch_size": 64, "evals_per_epoch": 3, "keep_checkpoints": 1}
    run(config(epochs=3, checkpoint_every=3, early_stopping=2, **within))
    found = entries(tmp_path / "results", "evaluation")
    assert [entry["step"] for entry in found] == [2, 3, 7]  # reported and scored once each
    assert [entry["step"] for entry in entries(tmp_path / "results", "epoch")] == [5]
    store = CheckpointStore(tmp_path / "saved")
    assert store.names() == ["step-0000000007", "step-0000000003"]
    assert store.best() == "step-0000000003"
    assert f"kept as {tmp_path / 'saved'}/step-0000000003" in capfd.readouterr().out


def test_test_data_choose_a_checkpoint_where_they_are_asked_to(
    config, sim_dataset, tmp_path, monkeypatch, capfd
):
    aucs_of_validation(monkeypatch, [0.7, 0.6], of="test")
    run(config(dataset_dir=sim_dataset, epochs=2, keep_checkpoints=1, select_by="test"))
    store = CheckpointStore(tmp_path / "saved")
    assert store.names() == ["step-0000000002", "step-0000000001"]
    assert store.best() == "step-0000000001"
    asked = "best by test data, as --select_by test asks: kept as "
    assert asked in capfd.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select_by": "validation"}, "select_by validation"),
        ({"early_stopping": 2}, "early_stopping"),
    ],
)
def test_what_goes_by_validation_data_needs_them(config, sim_dataset, options, said):
    with pytest.raises(MerlinSimError, match=f"{said} needs validation data, and"):
        run(config(dataset_dir=sim_dataset, **options))


def test_training_ends_where_nothing_gets_better_also_once_it_goes_on(
    config, tmp_path, monkeypatch, capfd
):
    aucs_of_validation(monkeypatch, [0.7, 0.7])
    run(config(epochs=2, early_stopping=3, select_by="newest", keep_checkpoints=1))
    said = capfd.readouterr().out  # where the newest is wanted the best is named and not kept
    assert "best by validation data: step 1 " in said and "kept as" not in said
    assert CheckpointStore(tmp_path / "saved").names() == ["step-0000000002"]
    aucs_of_validation(monkeypatch, [0.65, 0.5])
    goes_on = {"load_checkpoint_path": tmp_path / "saved", "save_checkpoint_path": tmp_path / "new"}
    result = run(config(epochs=9, early_stopping=3, **goes_on))
    assert [e["step"] for e in entries(tmp_path / "results", "epoch")] == [1, 2, 3, 4]
    assert result["best_step"] == 1
    said = capfd.readouterr().out  # of the best checkpoint, which is in the first place
    assert "3 evaluations in a row were no better than that after step 1" in said
    assert "best by validation data: step 1 " in said and "kept as" not in said
    # Going on trains nothing more, and evaluates.
    aucs_of_validation(monkeypatch, [0.5])
    again = {"load_checkpoint_path": tmp_path / "new", "results_dir": tmp_path / "again"}
    run(config(epochs=9, early_stopping=3, **again))
    assert not entries(tmp_path / "again", "step")
    assert entries(tmp_path / "again", "result")[0]["best_step"] == 1


def test_a_checkpoint_keeps_what_was_best():
    best = BestSoFar()
    best.take(5, {"validation_auc": 0.5, "test_auc": 0.4})
    best.take(9, {"validation_auc": None, "test_auc": 0.9})  # of one kind of label only
    best.take(9, {"validation_auc": 0.5, "test_auc": 0.9})
    assert BestSoFar(**asdict(best)) == best
    assert (best.steps, best.no_better) == (5, 1)
