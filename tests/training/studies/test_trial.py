from __future__ import annotations

import subprocess
import sys

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.studies.trial import Trial


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
