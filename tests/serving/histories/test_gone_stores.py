"""A store that hangs or is gone costs its time-out once; a user can be forgotten."""

from __future__ import annotations

import random
import signal
import socketserver
import threading
import time
from pathlib import Path

import pytest
from redis_server import redis_server

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.redis_store import (
    APPEND_SECONDS,
    FIRST_SECONDS,
    MOST_SECONDS,
    READ_SECONDS,
    Breaker,
)
from merlin_sim.serving.histories.store import History, Interaction, StoreError


def test_after_a_failure_calls_are_refused_at_once_for_longer_and_longer():
    now, called = [0.0], []
    breaker = Breaker("the store", lambda: now[0])

    def call(error=None):
        with breaker:
            called.append(now[0])
            if error is not None:
                raise error

    call()
    with pytest.raises(ZeroDivisionError):
        call(ZeroDivisionError())  # of whoever called, not of the store
    call()
    pause = FIRST_SECONDS
    for _ in range(8):
        with pytest.raises(StoreError, match="time-out"):
            call(StoreError("time-out"))
        count = len(called)
        now[0] += 0.99 * pause
        with pytest.raises(StoreError, match="the store: did not answer; it is asked again in"):
            call()
        assert len(called) == count
        now[0] += 0.02 * pause
        pause = min(2 * pause, MOST_SECONDS)
    # While one call tries, others do not wait for it too.
    with breaker, pytest.raises(StoreError, match="did not answer"), breaker:
        pass
    call()
    call()  # it answers again


def test_a_store_that_was_gone_for_hours_is_asked_again():
    now = [0.0]
    breaker = Breaker("the store", lambda: now[0])
    for _ in range(2000):
        with pytest.raises(StoreError, match="time-out"), breaker:
            raise StoreError("time-out")
        now[0] += MOST_SECONDS
    for _ in range(2):
        with breaker:
            pass


@pytest.fixture
def losing_redis(tmp_path):
    """Loses its connection before it answers a script that names the user "a".

    Gives its address, and the names of the scripts that it lost so.
    """
    pytest.importorskip("redis")
    scripts = []

    class Answering(socketserver.StreamRequestHandler):
        def handle(self):
            while head := self.rfile.readline():
                words = []
                for _ in range(int(head[1:])):
                    length = int(self.rfile.readline()[1:])
                    words.append(self.rfile.read(length + 2)[:-2])
                if words[0] == b"EVALSHA" and b'"a"' in words:
                    scripts.append(words[1])
                    return
                self.wfile.write(b":1\r\n" if words[0] == b"EVALSHA" else b"+OK\r\n")

    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "s"), Answering) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"unix://{tmp_path}/s?protocol=2", scripts
        server.shutdown()
        thread.join()


def test_what_may_have_been_kept_is_not_sent_again(losing_redis):
    address, scripts = losing_redis
    store = open_store(address, later=True)
    for append in (store.append, lambda batch: store.fill("1", batch)):
        with pytest.raises(StoreError, match="closed"):
            append([Interaction('"a"', "1")])
        assert len(scripts) == 1
        del scripts[:]
    store = open_store(address, later=True)
    assert isinstance(store.read_all(['"a"'], 9)[0], StoreError)
    assert len(scripts) == 2  # that can be asked twice
    store.close()


def test_connections_that_were_closed_while_idle_are_made_anew(redis_address):
    import redis

    server = redis.Redis.from_url(redis_address)
    server.flushdb()
    store = open_store(redis_address, create=True)
    for number in range(3):
        store.append([Interaction("1", str(number))])
        assert store.read("1", 9).items == [*range(number + 1)]
        assert store.users() == 1
        server.client_kill_filter(_type="normal", skipme=True)


def test_a_redis_that_stands_still_costs_its_time_out_once(tmp_path):
    with redis_server(tmp_path / "r") as (address, process):
        store = open_store(address, create=True)
        store.append([Interaction('"a"', "1")])
        process.send_signal(signal.SIGSTOP)
        try:
            begin = time.monotonic()
            found = store.read_all(['"a"'] * 256, 1000)
            took = time.monotonic() - begin
            assert READ_SECONDS <= took < 3 * READ_SECONDS
            assert all(isinstance(one, StoreError) for one in found) and len(found) == 256
            begin = time.monotonic()
            for _ in range(200):
                assert isinstance(store.read_all(['"a"'], 9)[0], StoreError)
            assert time.monotonic() - begin < READ_SECONDS
            with pytest.raises(StoreError):
                store.append([Interaction('"a"', "2")])
            assert time.monotonic() - begin < APPEND_SECONDS + 2
            # A model that is loaded meanwhile does not wait for it.
            later = open_store(address, later=True)
            assert isinstance(later.read_all(['"a"'], 9)[0], StoreError)
        finally:
            process.send_signal(signal.SIGCONT)
        end = time.monotonic() + 60
        while isinstance(found := store.read_all(['"a"'], 9)[0], StoreError):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert found.items[0] == 1


def test_a_damaged_history_is_the_fault_of_no_other(redis_address):
    import redis

    server = redis.Redis.from_url(redis_address, decode_responses=True)
    server.flushdb()
    store = open_store(redis_address, create=True)
    store.append([Interaction("1", "5", 1), Interaction("2", "6", 1)])
    server.rpush("merlin-sim:histories:1:1", "2 {broken")
    first, second = store.read_all(["1", "2"], 9)
    assert isinstance(first, StoreError) and second == History([6], [1])


def test_a_user_is_forgotten_and_no_other(store, address):
    for number in range(200):
        store.append([Interaction("7", str(number)), Interaction('"7"', f'"secret item {number}"')])
    assert store.delete('"7"') == 200
    assert store.read('"7"', 10**6).items == []
    assert store.read("7", 10**6).items == list(range(200)) and store.users() == 1
    assert store.delete('"7"') == 0
    store.close()
    if "://" not in address:  # nothing of it is left in the file, nor in the one beside
        for path in Path(address).parent.iterdir():
            assert b"secret item" not in path.read_bytes()


@pytest.mark.parametrize("seed", [7, 11, 18])
def test_nothing_is_left_of_any_user_among_many(tmp_path, seed):
    """Pages split and join while users take turns, which leaves copies between their rows."""
    draws = random.Random(seed)
    users = [f'"user {number:02}, to be found"' for number in range(60)]
    store = open_store(str(tmp_path / "s"), create=True)
    with store.load(overwrite=False) as filling:
        for moment in range(100):
            of_all = draws.sample(users, len(users))
            items = [str(draws.randrange(10 ** draws.randrange(1, 6))) for _ in of_all]
            filling.append([Interaction(*one, moment) for one in zip(of_all, items, strict=True)])
    for user in users[:35]:
        assert store.delete(user) == 100
        left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert user.encode() not in left
    store.close()
