"""One run at a time in a directory; and what is left of a run that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.ranks import run_lock
from merlin_sim.parallel.ranks.run_lock import RUN_LOCK, check_free, run_in

HOLD = """if True:
    import pathlib, sys
    from merlin_sim.parallel.ranks.run_lock import run_in
    with run_in(map(pathlib.Path, sys.argv[1:])):
        print("held", flush=True)
        input()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that is at work in results and in checkpoints."""
    words = [sys.executable, "-c", HOLD, str(tmp_path / "results"), str(tmp_path / "checkpoints")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_run_sees_who_is_there_and_a_killed_one_blocks_nobody(
    holder, tmp_path, monkeypatch
):
    monkeypatch.setattr(run_lock, "PAUSE_SECONDS", 0)
    for name in ("results", "checkpoints"):
        note = json.loads((tmp_path / name / RUN_LOCK).read_text())
        said = rf"{name}: .* process {holder.pid} on {note['host']}, since 20\d\d-\d\d-\d\d "
        with pytest.raises(MerlinSimError, match=said):
            with run_in([tmp_path / "other", tmp_path / name]):
                pytest.fail("two runs are in one directory")
        with pytest.raises(MerlinSimError, match=said):
            check_free([tmp_path / name])
    check_free([tmp_path / "other"])  # what was held beside the refused one is free again
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(60)
    check_free([tmp_path / "results"])
    with run_in([tmp_path / "results", tmp_path / "checkpoints"]):
        note = json.loads((tmp_path / "results" / RUN_LOCK).read_text())
        assert note["pid"] == os.getpid()


def test_one_directory_for_two_purposes_is_held_once(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "results")
    with run_in([tmp_path / "results", tmp_path / "results", tmp_path / "link"]):
        with pytest.raises(MerlinSimError, match="no other run"):
            check_free([tmp_path / "results"])
    check_free([tmp_path / "results"])


def test_a_directory_that_cannot_be_written_is_left_to_whoever_writes(tmp_path):
    (tmp_path / "file").write_text("")
    check_free([tmp_path / "none", tmp_path / "file"])
    with run_in([tmp_path / "file"]):
        assert (tmp_path / "file").read_text() == ""
