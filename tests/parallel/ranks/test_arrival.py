"""Ranks that start late, and ranks that never start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import command, entries, run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.ranks.arrival import (
    NOTICE_SECONDS,
    Rendezvous,
    lengthen_gloo_timeout,
    wait_for_ranks,
)

HELD = Path(__file__).parents[2] / "support/workers/held_rank.py"


@pytest.fixture
def rendezvous():
    """Horovod's own server, and what it tells the ranks of three."""
    server = pytest.importorskip("horovod.runner.http.http_server").RendezvousServer()
    port = server.start()
    server.init([])
    address = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1"}
    yield {**address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port), "HOROVOD_SIZE": "3"}
    server.stop()


class Clock:
    """Time passes only in ``sleep``, and something may happen meanwhile."""

    def __init__(self, meanwhile=lambda now: None):
        self.now = 0.0
        self.meanwhile = meanwhile

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.meanwhile(self.now)


@pytest.mark.slow
def test_a_rank_waits_for_all_others(rendezvous, capsys):
    server = Rendezvous.of_launcher(rendezvous)
    came = {20.0: 2, 200.0: 0}

    def meanwhile(now):
        for second in [second for second in came if second <= now]:
            server.arrive(came.pop(second))

    clock = Clock(meanwhile)
    wait_for_ranks(300, {**rendezvous, "HOROVOD_RANK": "1"}, clock, clock.sleep)
    assert 200 <= clock.now < 201 and not came
    assert capsys.readouterr().err == "merlin-sim: waiting for ranks 0, 2\n"


@pytest.mark.slow
def test_ranks_that_do_not_come_are_named(rendezvous):
    clock = Clock()
    with pytest.raises(MerlinSimError, match="^ranks 0, 2 did not start within 60 sec") as raised:
        wait_for_ranks(60, {**rendezvous, "HOROVOD_RANK": "1"}, clock, clock.sleep)
    assert raised.value.exit_code == 70
    assert NOTICE_SECONDS < 60 <= clock.now < 61


def test_a_server_that_is_gone_is_reported(rendezvous):
    gone = {**rendezvous, "HOROVOD_GLOO_RENDEZVOUS_PORT": "1"}
    with pytest.raises(MerlinSimError, match="server at 127.0.0.1:1 does not answer: .*refused"):
        wait_for_ranks(60, gone)


def test_one_process_waits_for_nobody():
    wait_for_ranks(60, {})


def test_horovod_waits_as_long_unless_it_was_told_otherwise():
    environ: dict[str, str] = {}
    lengthen_gloo_timeout(300.5, environ)
    assert environ == {"HOROVOD_GLOO_TIMEOUT_SECONDS": "301"}
    lengthen_gloo_timeout(60, environ)
    assert environ == {"HOROVOD_GLOO_TIMEOUT_SECONDS": "301"}


def held(words: list[str], gate: str) -> list[str]:
    """The command of two ranks, with the second one behind a gate."""
    place = next(i for i, word in enumerate(words) if word.endswith("bin/merlin-sim"))
    return [*words[:place], sys.executable, str(HELD), gate, *words[place:]]


@pytest.mark.slow
@pytest.mark.horovod
def test_a_run_whose_second_rank_starts_late(sim_dataset, tmp_path):
    options = ["--global_batch_size", "100", "--epochs", "1", "--affinity", "disabled"]
    words = command(sim_dataset, tmp_path, *options, ranks=2)
    done = run(held(words, "until-first-waits"), seconds=400)
    assert done.returncode == 0, done.stderr
    assert len(entries(tmp_path, "step")) == 3


@pytest.mark.slow
@pytest.mark.horovod
def test_a_run_whose_second_rank_never_starts_says_so(sim_dataset, tmp_path):
    words = command(sim_dataset, tmp_path, "--start_timeout", "1", ranks=2)
    done = run(held(words, "for-ever"), seconds=400)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "merlin-sim: rank 1 did not start within 1 seconds of this one" in said
    assert "exited with non-zero status" in said and "Exit code: 70" in said
    assert 'Traceback (most recent call last):\n  File "' not in done.stdout
