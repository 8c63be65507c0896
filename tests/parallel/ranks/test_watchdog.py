from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from types import SimpleNamespace

import psutil
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.ranks import watchdog as watchdog_module
from merlin_sim.parallel.ranks.arrival import EXIT_CODE
from merlin_sim.parallel.ranks.watchdog import (
    LONG_SECONDS,
    SILENCE_SECONDS,
    Progress,
    Watchdog,
    first_rank_address,
    judge,
)


def ranks(*steps, last_message=100.0, moved=100.0):
    return {
        rank: Progress(count, last_message=last_message, moved=moved)
        for rank, count in enumerate(steps)
    }


def test_a_rank_behind_the_others_that_stands_still_or_is_silent_is_named():
    assert judge(ranks(9, 9, 9), now=105, stall_timeout=1) is None  # however long all take
    state = ranks(10, 10, 9)
    assert judge(state, now=110, stall_timeout=45) is None
    for progress in state.values():
        progress.last_message = 146
    assert "rank 2 has made no step for 46 seconds" in judge(state, now=146, stall_timeout=45)
    state[1].last_message = 145 - SILENCE_SECONDS
    assert "rank 1 has not reported" in judge(state, now=146, stall_timeout=45)


def test_the_first_steps_and_writing_files_may_take_longer():
    first = ranks(3, 2)
    writing = ranks(9, 10)
    writing[0].patient = True
    for state in (first, writing):
        for progress in state.values():
            progress.last_message = 100 + LONG_SECONDS
        assert judge(state, now=99 + LONG_SECONDS, stall_timeout=45) is None
        assert judge(state, now=101 + LONG_SECONDS, stall_timeout=45)


def test_a_rank_that_goes_on_writing_is_alive_however_long_it_takes(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(watchdog_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    state = ranks(9, 10)
    for written in range(10):
        now[0] += LONG_SECONDS - 1
        state[0].beat(9, True, written)
        state[1].beat(10, False)
        assert judge(state, now[0], stall_timeout=45) is None
    now[0] += LONG_SECONDS + 1
    state[0].beat(9, True, written)
    state[1].beat(10, False)
    said = judge(state, now[0], stall_timeout=45)
    assert said == f"rank 0 has written nothing of a checkpoint for {LONG_SECONDS + 1:.0f} seconds"


def test_alone_it_does_nothing():
    def end(message, code):
        raise AssertionError(message)

    with Watchdog(Ranks(), end=end) as watchdog:
        watchdog.alive()
        with watchdog.patience():
            pass


@pytest.fixture
def entering(monkeypatch):
    """The watchdog of rank 0 of 2 while it waits for rank 1, and what it sent to rank 1."""
    reported, ended = queue.Queue(), queue.Queue()
    monkeypatch.setattr(
        watchdog_module, "broadcast_object", lambda value, ranks: reported.put(value)
    )
    watchdog = Watchdog(Ranks(0, 2, 0, 2), end=lambda *how: ended.put(how))
    thread = threading.Thread(target=watchdog.__enter__)
    thread.start()
    address, secret = reported.get(timeout=100)
    yield watchdog, thread, ended, address, secret
    if thread.is_alive():
        with socket.create_connection(address) as second:
            say(second, {"rank": 1, "secret": secret})
            thread.join(100)
    watchdog.__exit__(None, None, None)


def say(connection, message):
    connection.sendall(json.dumps(message).encode() + b"\n")


@pytest.fixture
def first_rank(entering):
    """The watchdog of rank 0 of 2, what it ends with, and the connection of rank 1."""
    watchdog, thread, ended, address, secret = entering
    with socket.create_connection(address) as second:
        say(second, {"rank": 1, "secret": secret})
        thread.join(100)
        yield watchdog, ended, second


HELLOS = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff\xfe\n",
    b"[" * 5000,
    b"[]\n",
    b'{"rank": 1}\n',
    b'{"rank": 1, "secret": "guessed"}\n',
    b'{"rank": 1, "secret": null}\n',
    b'{"rank": 2, "secret": "SECRET"}\n',
    b'{"rank": 0, "secret": "SECRET"}\n',
    b'{"rank": [], "secret": "SECRET"}\n',
]


def test_whoever_does_not_show_the_secret_is_sent_away(entering):
    _, thread, ended, address, secret = entering
    for hello in HELLOS:
        with socket.create_connection(address, timeout=100) as stranger:
            stranger.sendall(hello.replace(b"SECRET", secret.encode()))
            stranger.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b"", hello  # closed
        assert thread.is_alive() and ended.empty(), hello


def test_silent_strangers_keep_nobody_waiting(entering):
    _, thread, _, address, secret = entering
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection(address))
        second = stack.enter_context(socket.create_connection(address))
        say(second, {"rank": 1, "secret": secret})
        thread.join(100)
        assert not thread.is_alive()
    # Nobody can connect any more.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


def test_a_rank_that_never_connects_is_named(monkeypatch):
    monkeypatch.setattr(watchdog_module, "broadcast_object", lambda value, ranks: value)
    monkeypatch.setattr(watchdog_module, "CONNECT_SECONDS", 0.0)
    watchdog = Watchdog(Ranks(0, 3, 0, 3))
    with pytest.raises(MerlinSimError, match="of rank 1, 2 nothing came to 127.0.0.1:"):
        watchdog.__enter__()


def test_a_rank_that_dies_is_named_without_waiting_for_a_beat(first_rank, monkeypatch):
    # The launcher ends the others soon after: what is not said by then is never said.
    monkeypatch.setattr(watchdog_module, "BEAT_SECONDS", 1000.0)
    _, ended, second = first_rank
    second.shutdown(socket.SHUT_RDWR)
    message, code = ended.get(timeout=100)
    assert "rank 1 died" in message
    assert code == EXIT_CODE


def test_a_rank_that_failed_says_why(first_rank, monkeypatch):
    monkeypatch.setattr(watchdog_module, "BEAT_SECONDS", 0.01)  # for which it waits first
    _, ended, second = first_rank
    second.sendall(json.dumps({"failed": "no such file", "code": 2}).encode() + b"\n")
    assert ended.get(timeout=100) == ("rank 1: no such file", 2)


def test_a_rank_that_says_goodbye_is_not_missed(first_rank):
    _, ended, second = first_rank
    (listening,) = [one for one in threading.enumerate() if "_greet" in one.name]
    second.sendall(json.dumps({"bye": True}).encode() + b"\n")
    second.shutdown(socket.SHUT_RDWR)
    listening.join(100)  # it hears the end of the connection at once
    assert not listening.is_alive() and ended.empty()


TWO_MACHINES = Ranks(0, 4, 0, 2)


def test_the_interface_that_horovod_uses_is_used(monkeypatch):
    interfaces = psutil.net_if_addrs().items()
    loopback = next(n for n, found in interfaces if any(a.address == "127.0.0.1" for a in found))
    assert first_rank_address(TWO_MACHINES, {"HOROVOD_GLOO_IFACE": loopback}) == "127.0.0.1"
    with pytest.raises(MerlinSimError, match="HOROVOD_GLOO_IFACE names eth77, an interface with"):
        first_rank_address(TWO_MACHINES, {"HOROVOD_GLOO_IFACE": "eth77"})
    # Ranks of one machine use the loopback, whatever is named.
    assert first_rank_address(Ranks(0, 2, 0, 2), {"HOROVOD_GLOO_IFACE": "eth7"}) == "127.0.0.1"
    # Else it is the one that reaches the launcher, or a rank elsewhere.
    launcher = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.9"}
    assert first_rank_address(TWO_MACHINES, launcher).startswith("127.")
    own = watchdog_module.socket.gethostname()
    hosts = [own, own, "127.0.0.8", "127.0.0.8"]
    monkeypatch.setattr(watchdog_module, "gather_objects", lambda value, ranks: hosts)
    assert first_rank_address(TWO_MACHINES, {}).startswith("127.")
