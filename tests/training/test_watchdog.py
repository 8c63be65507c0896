from __future__ import annotations

from merlin_sim.training.distributed import Ranks
from merlin_sim.training.watchdog import LONG_SECONDS, SILENCE_SECONDS, Progress, Watchdog, judge


def ranks(*steps, heard=100.0, moved=100.0):
    return {rank: Progress(count, heard=heard, moved=moved) for rank, count in enumerate(steps)}


def test_ranks_in_step_are_fine_however_long_they_take():
    assert judge(ranks(9, 9, 9), now=105, stall_timeout=1) is None


def test_a_silent_rank_is_named():
    state = ranks(9, 9, 9, heard=100)
    state[2].heard -= SILENCE_SECONDS + 1
    assert "rank 2 has not been heard of" in judge(state, 100, 45)


def test_a_rank_behind_the_others_is_named_when_it_stands_still():
    state = ranks(10, 10, 9)
    assert judge(state, now=110, stall_timeout=45) is None
    for progress in state.values():
        progress.heard = 146
    assert "rank 2 has made no step for 46 seconds" in judge(state, now=146, stall_timeout=45)


def test_the_first_steps_and_writing_files_may_take_longer():
    first = ranks(3, 2)
    writing = ranks(9, 10)
    writing[0].patient = True
    for state in (first, writing):
        for progress in state.values():
            progress.heard = 100 + LONG_SECONDS
        assert judge(state, now=99 + LONG_SECONDS, stall_timeout=45) is None
        assert judge(state, now=101 + LONG_SECONDS, stall_timeout=45)


def test_alone_it_does_nothing():
    def end(message, code):
        raise AssertionError(message)

    with Watchdog(Ranks(), end=end) as watchdog:
        watchdog.alive()
        with watchdog.patience():
            pass
