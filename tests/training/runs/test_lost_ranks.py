"""A rank that dies or hangs ends the whole run, and is named."""

from __future__ import annotations

import re
import signal
import threading
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import slow_writer_worker
from processes import Started, command, horovodrun, run
from warm import warm

from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.horovod]
LOSSES = {
    "hangs": (1, signal.SIGSTOP, "rank 1 has not been heard of"),
    "dies": (1, signal.SIGKILL, "rank 1 died"),
}


@pytest.fixture(scope="module")
def ended(sim_dataset, tmp_path_factory):
    """How each run ended; while one of them waits for the rank that hangs, the others run."""
    found, waiting = {}, []
    with ExitStack() as runs:
        for way, (rank, send, _) in LOSSES.items():
            place = tmp_path_factory.mktemp(way)
            options = ["--global_batch_size", "100", "--epochs", "100000", "--affinity"]
            options += ["disabled", "--save_checkpoint_path", str(place / "saved")]
            words = command(sim_dataset, place / "results", *options)
            # What stops is the process itself; what is killed may be warm.
            words = [*horovodrun(2), *(words if send == signal.SIGSTOP else warm(*words))]
            run = runs.enter_context(Started(words, place / "log"))
            run.wait_for_steps(place / "results", 7)
            begin = time.monotonic()
            run.ranks()[rank].send_signal(send)

            def wait(way=way, place=place, run=run, begin=begin):
                code = run.wait(280)
                seconds = time.monotonic() - begin
                found[way] = SimpleNamespace(place=place, code=code, seconds=seconds)

            waiting.append(threading.Thread(target=wait))
            waiting[-1].start()
            if send == signal.SIGKILL:
                waiting[-1].join()
        for thread in waiting:
            thread.join()
    return found


@pytest.mark.parametrize("way", LOSSES)
def test_a_lost_rank_ends_the_run_within_a_minute(ended, way):
    run = ended[way]
    assert run.code != 0 and run.seconds < 60
    text = (run.place / "log").read_text()
    assert LOSSES[way][2] in text, text
    checkpoint = CheckpointStore(run.place / "saved").load()
    assert checkpoint.facts["steps"] >= 3


@pytest.mark.parametrize("seconds, limit, ends_well", [(0.06, 10, True), (30, 3, False)])
def test_a_writer_is_alive_while_it_goes_on_writing(
    sim_dataset, tmp_path, seconds, limit, ends_well
):
    options = ["--global_batch_size", "100", "--epochs", "2", "--affinity", "disabled"]
    options += ["--save_checkpoint_path", str(tmp_path / "saved")]
    words = command(sim_dataset, tmp_path / "results", *options)[1:]
    slowly = warm(slow_writer_worker.__file__, str(seconds), str(limit), *words)
    done = run([*horovodrun(2), *slowly])
    text = done.stdout + done.stderr
    saved = CheckpointStore(tmp_path / "saved").names()
    if ends_well:
        assert done.returncode == 0, text
        assert len(saved) == 2
        assert max(map(float, re.findall(r"writes took ([\d.]+) seconds", text))) > limit
    else:
        assert done.returncode != 0 and not saved
        assert "rank 0 has written nothing of a checkpoint for" in text
