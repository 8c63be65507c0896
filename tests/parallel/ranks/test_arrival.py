"""Ranks that start late, and ranks that never start."""

from __future__ import annotations

import sys

import pytest
from processes import command, horovodrun, run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.ranks.arrival import (
    NOTICE_SECONDS,
    Rendezvous,
    lengthen_gloo_timeout,
    wait_for_ranks,
)


@pytest.fixture
def rendezvous():
    """Horovod's own server, and what it answers the ranks of three."""
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
def test_a_rank_waits_for_all_others_and_names_those_that_do_not_come(rendezvous, capsys):
    mine = {**rendezvous, "HOROVOD_RANK": "1"}
    clock = Clock()
    with pytest.raises(MerlinSimError, match="^ranks 0, 2 did not start within 60 sec") as raised:
        wait_for_ranks(60, mine, clock, clock.sleep)
    assert raised.value.exit_code == 70
    assert NOTICE_SECONDS < 60 <= clock.now < 61
    capsys.readouterr()
    server = Rendezvous.of_launcher(rendezvous)
    came = {20.0: 2, 200.0: 0}

    def meanwhile(now):
        for second in [second for second in came if second <= now]:
            server.arrive(came.pop(second))

    clock = Clock(meanwhile)
    wait_for_ranks(300, mine, clock, clock.sleep)
    assert 200 <= clock.now < 201 and not came
    assert capsys.readouterr().err == "merlin-sim: waiting for ranks 0, 2\n"
    gone = {**rendezvous, "HOROVOD_GLOO_RENDEZVOUS_PORT": "1"}
    with pytest.raises(MerlinSimError, match="server at 127.0.0.1:1 does not answer: .*refused"):
        wait_for_ranks(60, gone)
    wait_for_ranks(60, {})  # one process waits for nobody


def test_horovod_waits_as_long_unless_it_was_set_otherwise():
    environ: dict[str, str] = {}
    lengthen_gloo_timeout(300.5, environ)
    assert environ == {"HOROVOD_GLOO_TIMEOUT_SECONDS": "301"}
    lengthen_gloo_timeout(60, environ)
    assert environ == {"HOROVOD_GLOO_TIMEOUT_SECONDS": "301"}


FIRST_ALONE = """
import os, sys, time
while os.environ["HOROVOD_RANK"] == "1":
    time.sleep(0.1)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.horovod
def test_a_run_whose_second_rank_never_starts_says_so(sim_dataset, tmp_path):
    words = command(sim_dataset, tmp_path, "--start_timeout", "1")
    done = run([*horovodrun(2), sys.executable, "-c", FIRST_ALONE, *words], seconds=400)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "merlin-sim: rank 1 did not start within 1 seconds of this one" in said
    assert "exited with non-zero status" in said and "Exit code: 70" in said
    assert 'Traceback (most recent call last):\n  File "' not in done.stdout
