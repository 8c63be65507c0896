from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError, Stopped
from merlin_sim.training.studies import runner
from merlin_sim.training.studies.runner import StudyRunner, require_all, search_folder
from merlin_sim.training.studies.search import SearchMemory
from merlin_sim.training.studies.study_file import Search, StudyFile
from merlin_sim.training.studies.trial import SettledStudy

SEARCH = Search(2, {"lr": (0.1, 0.2)})


@pytest.fixture
def study(tmp_path):
    def make(**changes):
        file = StudyFile(tmp_path / "s.yaml", "Question", {"books": Path("books")}, **changes)
        return SettledStudy(file, tmp_path, frozenset(), frozenset())

    return make


@pytest.fixture
def programs(monkeypatch):
    """Let runs be Python programs; returns those that were started."""
    started = []

    def set_program(program):
        def line(trial, command, config):
            started.append(trial.directory.parent.name)
            return [sys.executable, "-c", program, str(trial.directory)]

        monkeypatch.setattr(runner, "command_line", line)
        return started

    return set_program


@pytest.mark.slow
def test_a_run_that_was_stopped_stops_the_study_and_has_not_failed(study, programs):
    started = programs("raise SystemExit(75)")
    with pytest.raises(Stopped, match="seed 1: the run was stopped"):
        StudyRunner(study(seeds=(1, 2)), print).run()
    given = study(search=SEARCH)
    with pytest.raises(Stopped):
        StudyRunner(given, print).run()
    memory = SearchMemory(given.root, SEARCH)
    assert memory.begun() == [0] and memory.ended() == []
    assert started == ["all", search_folder(0)]


def test_a_signal_while_a_run_is_started_ends_it_too(study, programs, monkeypatch):
    programs("import time; time.sleep(300)")
    popen, runs = subprocess.Popen, []

    def start(*words, **options):
        runs.append(popen(*words, **options))
        os.kill(os.getpid(), signal.SIGTERM)
        return runs[0]

    monkeypatch.setattr(runner.subprocess, "Popen", start)
    with pytest.raises(Stopped, match="stopped on request"):
        StudyRunner(study(seeds=(1, 2)), print).run()
    assert [run.poll() for run in runs] == [-signal.SIGTERM]


@pytest.mark.slow
def test_a_trial_that_fails_is_followed_by_the_next_and_tried_again_later(study, programs):
    started = programs("print('merlin-sim: no'); raise SystemExit(2)")
    given, said = study(search=SEARCH), []
    for starts in (1, 2):
        found = StudyRunner(given, said.append)
        found.run()
        assert sum("failed with 2: merlin-sim: no" in line for line in said) == 2 * starts
        with pytest.raises(MerlinSimError, match="runs that failed, "):
            require_all(found)
        assert started == [search_folder(0), search_folder(1)] * starts
    memory = SearchMemory(given.root, SEARCH)
    assert memory.begun() == [0, 1] and memory.ended() == []


def test_the_settings_of_a_grid_take_turns(study, programs):
    program = """if True:
        import json, pathlib, sys
        log = pathlib.Path(sys.argv[1], "log.json")
        log.write_text(json.dumps({"type": "result", "test_auc": 0.5}) + "\\n")
    """
    started = programs(program)
    StudyRunner(study(grid={"lr": (0.1, 0.2)}, seeds=(1, 2)), print).run()
    assert started == ["lr-0.1", "lr-0.2"] * 2
