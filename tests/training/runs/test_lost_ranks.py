"""A rank that dies or hangs ends the whole run, and is named."""

from __future__ import annotations

import signal
import time

import pytest
from processes import Started, command

from merlin_sim.checkpoints.checkpoint_store import CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.horovod]


@pytest.mark.parametrize(
    "rank, send, sentence",
    [
        (1, signal.SIGKILL, "rank 1 died"),
        (0, signal.SIGKILL, "rank 0 died"),
        (1, signal.SIGSTOP, "rank 1 has not been heard of"),
    ],
    ids=["dies", "first-dies", "hangs"],
)
def test_a_lost_rank_ends_the_run_within_a_minute(sim_dataset, tmp_path, rank, send, sentence):
    saved, results = tmp_path / "saved", tmp_path / "results"
    options = ["--global_batch_size", "100", "--epochs", "100000", "--affinity", "disabled"]
    options += ["--save_checkpoint_path", str(saved)]
    words = command(sim_dataset, results, *options, ranks=2)
    with Started(words, tmp_path / "log") as started:
        started.wait_for_steps(results, 7)
        begin = time.monotonic()
        started.ranks()[rank].send_signal(send)
        assert started.wait(60) != 0
        assert time.monotonic() - begin < 60
    text = (tmp_path / "log").read_text()
    assert sentence in text, text
    checkpoint = CheckpointStore(saved).load()
    assert checkpoint.facts["steps"] >= 3
