from __future__ import annotations

from pathlib import Path

from merlin_sim.training.reports.run_results import RunResults
from merlin_sim.training.reports.settings import settings_of


def result(name, seed, dataset="abc", **options):
    config = {"seed": seed, "results_dir": f"/tmp/{name}", "epochs": 2, **options}
    facts = {"ranks": 1, "dataset": {"fingerprint": dataset}}
    return RunResults(name, Path(name), [], [], {"test_auc": 0.5 + seed / 100}, {}, config, facts)


def test_runs_that_differ_in_their_seed_are_one_setting():
    runs = [
        result("a", 1, lr=0.1),
        result("b", 1, lr=0.2),
        result("c", 2, lr=0.1),
    ]
    settings = settings_of(runs)
    assert [setting.name for setting in settings] == ["lr 0.1", "b"]
    assert settings[0].measured("test_auc") == [0.51, 0.52]
    assert settings[1].values == {"lr": 0.2}


def test_runs_of_other_models_are_other_settings_and_a_resumed_run_is_not():
    runs = [result(name, 1, load_checkpoint_path=f"/m/{name}") for name in ("good", "bad")]
    assert [setting.name for setting in settings_of(runs)] == ["good", "bad"]
    resumed = result("a", 1, load_checkpoint_path="/a", save_checkpoint_path="/a")
    whole = result("b", 2, load_checkpoint_path=None, save_checkpoint_path="/b")
    assert [setting.name for setting in settings_of([resumed, whole])] == ["all runs"]


def test_a_run_that_gave_the_same_again_counts_once():
    (setting,) = settings_of([result("a", 1), result("b", 1), result("c", 2)])
    assert setting.measured("test_auc") == [0.51, 0.52]


def test_another_dataset_is_another_setting():
    assert len(settings_of([result("a", 1), result("b", 1, dataset="def")])) == 2


def test_runs_of_which_nothing_is_known_stay_apart():
    runs = [result(name, 1) for name in "ab"]
    for run in runs:
        run.config.clear()
    assert [setting.name for setting in settings_of(runs)] == ["a", "b"]
    assert [setting.name for setting in settings_of([result("a", 1), result("b", 2)])] == [
        "all runs"
    ]
