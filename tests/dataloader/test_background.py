from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from merlin_sim.dataloader.background import Background


def test_items_arrive_in_order_and_end_stays_the_end():
    items = Background(range(100), ahead=3)
    assert list(items) == list(range(100))
    assert list(items) == []


def test_no_more_is_made_ahead_than_allowed():
    made, wait = [], threading.Event()

    def work():
        for index in range(10):
            made.append(index)
            if len(made) == 3:
                wait.set()
            yield index

    items = Background(work(), ahead=3)
    assert wait.wait(100)
    assert next(items) == 0 and len(made) <= 4
    items.stop()
    assert len(made) <= 5


def test_an_error_arrives_after_the_items_before_it():
    def work():
        yield 1
        raise ValueError("broken")

    items = Background(work(), ahead=2)
    assert next(items) == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            next(items)


def test_stop_ends_the_thread_and_closes_the_source():
    closed = []

    def work():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    before = set(threading.enumerate())
    items = Background(work(), ahead=2)
    next(items)
    items.stop()
    assert closed == [True] and set(threading.enumerate()) <= before
    with pytest.raises(StopIteration):
        next(items)


def test_whoever_drops_the_iterator_ends_the_thread():
    before = set(threading.enumerate())
    items = Background(iter(int, 1), ahead=2)
    next(items)
    assert set(threading.enumerate()) - before
    del items
    assert set(threading.enumerate()) <= before


ENDING = """
import sys
from merlin_sim.dataloader.background import Background

def items():
    try:
        while True:
            yield 1
    finally:
        print("closed", flush=True)

running = Background(items(), ahead=2)
next(running)
sys.exit(7)
"""


def test_a_process_that_ends_waits_for_the_thread():
    """Whatever ended it: a full disk, a refusal, Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"closed\n", b"")
