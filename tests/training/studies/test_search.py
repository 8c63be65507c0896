from __future__ import annotations

import sys

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.studies.search import SearchMemory, require_optuna
from merlin_sim.training.studies.study_file import Range, Search

SPACE = {"lr": Range(0.001, 0.1, log=True), "epochs": Range(1, 5), "optimizer": ("adam", "sgd")}


def search(**changes):
    return Search(**{"trials": 4, "space": SPACE, "startup_trials": 1, **changes})


@pytest.mark.slow
def test_a_search_that_was_left_goes_on_as_if_it_had_not_been(tmp_path):
    aucs = {}
    for name, reopened in (("whole", False), ("left", True)):
        (tmp_path / name).mkdir()
        memory = SearchMemory(tmp_path / name, search())
        for _ in range(4):
            number = memory.ask()
            if reopened:  # the process is killed, another one takes the trial up
                memory = SearchMemory(tmp_path / name, search())
                assert memory.begun() == [number]
            values = memory.values(number)
            memory.end(number, -abs(values["lr"] - 0.02))
        aucs[name] = [(values, auc) for _, _, values, auc in memory.ended()]
        assert memory.begun() == [] and list(memory.numbers_to_run()) == []
    assert aucs["whole"] == aucs["left"]
    assert len({values["lr"] for values, _ in aucs["whole"]}) == 4
    assert all(0.001 <= v["lr"] <= 0.1 and 1 <= v["epochs"] <= 5 for v, _ in aucs["whole"])


def test_processes_share_a_search(tmp_path):
    first, second = (SearchMemory(tmp_path, search()) for _ in range(2))
    assert (first.ask(), second.ask()) == (0, 1)
    assert first.count == second.count == 2
    first.end(1, 0.5)
    assert second.begun() == [0]
    assert next(second.numbers_to_run()) == 0  # what was begun comes before another one


def test_trials_below_the_median_end_early(tmp_path):
    memory = SearchMemory(tmp_path, search())
    good, bad = memory.ask(), memory.ask()
    assert memory.report_epoch(good, 1, 0.8)
    assert memory.report_epoch(good, 1, 0.8)  # a run that went on tells it again
    memory.end(good, 0.8)
    assert not memory.report_epoch(bad, 1, 0.6)
    memory.end_early(bad)
    assert [how for _, how, _, _ in memory.ended()] == ["complete", "pruned"]
    other = SearchMemory(tmp_path, search(prune=False))
    assert other.report_epoch(other.ask(), 1, 0.1)
    (tmp_path / "warm").mkdir()
    memory = SearchMemory(tmp_path / "warm", search(warmup_epochs=2))
    good, bad = memory.ask(), memory.ask()
    for epoch in (1, 2, 3):
        assert memory.report_epoch(good, epoch, 0.8)
    memory.end(good, 0.8)
    assert [memory.report_epoch(bad, epoch, 0.6) for epoch in (1, 2, 3)] == [True, True, False]


def test_what_cannot_be_searched_is_refused(tmp_path, monkeypatch):
    SearchMemory(tmp_path, search())
    with pytest.raises(MerlinSimError, match="a search of another space"):
        SearchMemory(tmp_path, search(space={"lr": (0.1, 0.2)}))
    SearchMemory(tmp_path, search(trials=20))
    (tmp_path / "search.db").write_text("no database " * 500)
    with pytest.raises(MerlinSimError, match=r"search\.db: expected the storage of a search"):
        SearchMemory(tmp_path, search())
    monkeypatch.setitem(sys.modules, "optuna", None)  # it is not installed
    with pytest.raises(MerlinSimError, match=r"make setup.*\.\[study\]"):
        require_optuna()
