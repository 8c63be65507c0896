"""Signals that wait, and what they do once they need not."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import pytest

from merlin_sim.parallel.ranks.interruption import signals_wait, sigterm_interrupts


@contextmanager
def handled(name, handler):
    """Have a signal handled so, as the process was started or as others left it."""
    before = signal.signal(name, handler)
    try:
        yield
    finally:
        signal.signal(name, before)


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_until_the_block_has_ended(name):
    done = False
    with handled(signal.SIGINT, signal.default_int_handler), sigterm_interrupts():
        handler = signal.getsignal(name)
        with signals_wait():
            pass
        assert signal.getsignal(name) is handler
        with pytest.raises(KeyboardInterrupt), signals_wait():
            signal.raise_signal(name)
            done = True
        assert done and signal.getsignal(name) is handler


def test_what_is_not_to_be_heard_is_not_heard():
    """As Ctrl-C by what a shell runs in the background, and by what such a process starts."""
    with handled(signal.SIGINT, signal.SIG_IGN), signals_wait():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGINT)
