"""The runs of a study: in which order, by whom, and what is made of how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from processes import quick_horovodrun

from merlin_sim.foundation.exceptions import MerlinSimError, Stopped
from merlin_sim.training.studies import runner
from merlin_sim.training.studies import trial as trials
from merlin_sim.training.studies.runner import StudyRunner, require_all, search_folder
from merlin_sim.training.studies.search import SearchMemory
from merlin_sim.training.studies.study_file import Search, StudyFile
from merlin_sim.training.studies.trial import SettledStudy, Trial

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
    programs("raise SystemExit(2)")
    said = []
    StudyRunner(study(seeds=(1, 2), grid={"lr": (0.1, 0.2)}), said.append).run()
    starts = [line.partition(":")[0] for line in said if ": starts" in line]
    assert starts == [f"lr {lr}, seed {seed}" for seed in (1, 2) for lr in (0.1, 0.2)]


@pytest.fixture
def ranks(monkeypatch, tmp_path):
    """Let the runs of a study be Python programs on ranks; gives what sets the program."""
    quick_horovodrun(tmp_path)
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    return lambda program: monkeypatch.setattr(runner, "MERLIN_SIM", program)


def line_of(given):
    """The words that start the first run of a study."""
    run, *_ = given.trials({})
    return runner.command_line(run, "train", run.prepare())


@pytest.mark.slow
@pytest.mark.horovod
@pytest.mark.parametrize(
    "program, failure",
    [("raise SystemExit(75)", None), ("exit('merlin-sim: no')", "failed with 1: merlin-sim: no")],
)
def test_how_ranks_end_is_how_their_run_ends(study, ranks, program, failure):
    ranks(program)
    given, said = study(seeds=(1, 2), options={"ranks": 2}), []
    assert "-np 2 -H localhost:2" in " ".join(line_of(given))
    with (
        contextlib.nullcontext()
        if failure
        else pytest.raises(Stopped, match="seed 1: the run was stopped")
    ):
        StudyRunner(given, said.append).run()
    assert [line for line in said if "failed" in line] == [
        f"seed {seed}: {failure}" for seed in (1, 2) if failure
    ]


@pytest.mark.slow
def test_processes_share_the_runs_of_a_study(study, programs, monkeypatch):
    """A run that another process has is left to it; whoever is done waits for it to end."""
    ended = """
import pathlib, sys
pathlib.Path(sys.argv[1], "log.json").write_text('{"type": "result", "test_auc": 0.5}\\n')
"""
    programs(ended)
    monkeypatch.setattr(runner, "WAIT", 0)
    given, said = study(seeds=(1, 2, 3)), []
    ((_, (theirs, *_)),) = given.grid
    other = contextlib.ExitStack()
    assert other.enter_context(theirs.claimed()) is not None

    def say(sentence):
        said.append(sentence)
        if sentence.startswith("waiting for 1 runs of another process"):
            (theirs.directory / "log.json").write_text('{"type": "result", "test_auc": 0.5}\n')
            other.close()

    StudyRunner(given, say).run()
    started = [sentence for sentence in said if ": starts" in sentence]
    assert [sentence[:6] for sentence in started] == ["seed 2", "seed 3"]
    assert theirs.is_finished


DEAF = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path({folder!r})
(folder / f"{{os.getpid()}}.pid").touch()
while len(list(folder.glob("*.pid"))) < 2:
    time.sleep(0.1)
if os.environ["HOROVOD_RANK"] == "0":
    (folder / "log.json").write_text('{{"type": "epoch", "epoch": 1}}\\n')
time.sleep(300)
"""


@pytest.mark.slow
@pytest.mark.horovod
def test_ranks_that_are_asked_to_stop_and_do_not_are_ended(study, ranks, monkeypatch):
    monkeypatch.setattr(runner, "STOPPED_WITHIN", 0.5)
    given = study(options={"ranks": 2})
    (run,) = given.trials({})
    ranks(DEAF.format(folder=str(run.directory)))
    line = line_of(given)
    with run.claimed() as lock:
        assert runner.Launched(run, line, lock).wait(lambda entry: False) is None
    pids = [int(path.stem) for path in run.directory.glob("*.pid")]
    assert len(pids) == 2
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


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


EPOCHS = """
import json, signal, sys
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
path = Path(sys.argv[1], "log.json")
auc, last = (0.8, {first_ends_after}) if "trial-0000" in sys.argv[1] else (0.6, 3)
done = len(path.read_text().splitlines()) if path.exists() else 0
entries = [{{"type": "epoch", "epoch": epoch, "validation_auc": auc}} for epoch in (1, 2, 3)]
entries.append({{"type": "result", "best_validation_auc": auc}})
entries = entries[done : 4 if done or last == 3 else last]
with open(path, "a") as log:
    print(*map(json.dumps, entries), sep="\\n", file=log, flush=True)
raise SystemExit(0 if entries[-1]["type"] == "result" else 1)
"""


class KilledStudyError(BaseException):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [3, 2], ids=["finished", "unfinished"])
def test_epochs_of_a_run_that_outlived_its_study_count(epochs, study, programs, monkeypatch):
    started = programs(EPOCHS.format(first_ends_after=epochs))
    monkeypatch.setattr(trials.CheckpointStore, "names", lambda store: ["step-0000000001"])
    search = replace(SEARCH, startup_trials=1)
    given = study(search=search, options={"epochs": 3})

    def die(sentence):
        if "epoch 1" in sentence:
            raise KilledStudyError

    with pytest.raises(KilledStudyError):
        StudyRunner(given, die).run()
    StudyRunner(given, print).run()
    ended = SearchMemory(given.root, search).ended()
    assert [how for _, how, _, _ in ended] == ["complete", "pruned"]
    assert started.count(search_folder(0)) == (1 if epochs == 3 else 2)


def trial(directory, **options):
    return Trial(directory, "books", {}, 1, {"lr": 0.1, "dropout_rate": None, **options}, "seed 1")


def test_a_trial_is_held_by_one_process_and_by_what_that_started(tmp_path):
    held = trial(tmp_path / "run")
    with held.claimed() as lock:
        assert lock is not None
        with held.claimed() as other:
            assert other is None
        words = [sys.executable, "-c", "input()"]
        started = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[lock])
    with held.claimed() as other:  # the study is gone, the run is not
        assert other is None
    started.communicate(b"\n")
    with held.claimed() as again:
        assert again is not None


def test_a_directory_of_other_options_is_refused(tmp_path):
    path = trial(tmp_path / "run").prepare()
    assert path.read_text() == "lr: 0.1\n"
    trial(tmp_path / "run").prepare()
    with pytest.raises(MerlinSimError, match=r"other options: lr 0\.1 there and 0\.2 here"):
        trial(tmp_path / "run", lr=0.2).prepare()
    (tmp_path / "run" / "run.json").write_text('{"ranks": 1}')
    with pytest.raises(MerlinSimError, match=r"other options: ranks 1 there and 2 here"):
        trial(tmp_path / "run", ranks=2).prepare()


def test_a_trial_has_ended_when_its_log_says_so(tmp_path):
    run = trial(tmp_path)
    assert not run.is_finished and run.resume_from is None
    (tmp_path / "log.json").write_text('{"type": "step", "step": 1}\n')
    assert not run.is_finished
    (tmp_path / "log.json").write_text('{"type": "result", "test_auc": 0.5}\n')
    assert run.is_finished
