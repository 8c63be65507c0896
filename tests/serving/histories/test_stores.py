"""Stores of histories give back what was appended, in order, whatever keeps them."""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from redis_server import redis_server

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.redis_store import FILLING
from merlin_sim.serving.histories.store import History, Interaction, StoreError

WORKER = Path(__file__).parents[2] / "support/workers/appending.py"
BLOCK = 64
"""More interactions than most histories here have."""
USERS = ['"a"', "7", '"7"', '"b:\\"{x}"']


def interaction(user, item, time=None):
    return Interaction(user, str(item), time)


class PlainStore:
    """The same in a dictionary: what a history should be, in the fewest words."""

    def __init__(self):
        self.entries = {}

    def append(self, interactions):
        for user, item, time in interactions:
            own = self.entries.setdefault(user, [])
            own.append((own[-1][0] if time is None and own else time, int(item)))
            own.sort(key=lambda entry: -math.inf if entry[0] is None else entry[0])

    def read(self, user, newest):
        own = self.entries.get(user, [])
        last = own[max(0, len(own) - newest) :]
        return History([item for _, item in last], [time for time, _ in last])


@pytest.mark.parametrize("seed", range(3))
def test_a_history_is_what_was_appended_in_the_order_of_time(store, seed):
    draws = random.Random(seed)
    expected = PlainStore()
    for number in range(150):
        time = [None, number, draws.randrange(number + 1), number / 2][draws.randrange(4)]
        length = draws.choice([1, 1, 2, BLOCK + 1])
        batch = [interaction(draws.choice(USERS), draws.randrange(99), time) for _ in range(length)]
        batch[0] = batch[0]._replace(time=draws.choice([time, draws.randrange(number + 1)]))
        store.append(batch)
        expected.append(batch)
    for user in (*USERS, '"A"'):
        for newest in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 10**6):
            assert store.read(user, newest) == expected.read(user, newest)
    assert store.users() == len(USERS)


def test_another_process_reads_items_as_they_were_and_many_users_at_once(store, address):
    items = ['"Ä \\" , x"', '{"item_id":"B7","cat_id":3}', '"1,2"', "12", '"\\u0000"']
    store.append([Interaction("1", item) for item in items[:4]])
    other = open_store(address)
    store.append([Interaction("1", items[4])])
    assert other.read("1", 9).items == ['Ä " , x', {"item_id": "B7", "cat_id": 3}, "1,2", 12, "\0"]
    users = [f'"user {number}"' for number in range(50)]
    store.append([Interaction(user, str(index), index) for index, user in enumerate(users)])
    found = other.read_all([*users, '"nobody"'], 9)
    assert [one.items for one in found] == [[index] for index in range(50)] + [[]]
    assert other.read_all(users[:2], 0) == [History([], [])] * 2
    other.close()
    if "://" not in address:  # a file is for its user alone
        assert {path.stat().st_mode & 0o777 for path in Path(address).parent.iterdir()} == {0o600}


def test_users_of_both_kinds_of_keys_are_shown(store):
    assert store.some_users() == []
    store.append([interaction(f'"{number}"', 1) for number in range(20)])
    assert {user[0] for user in store.some_users()} == {'"'}
    store.append([interaction("-7", 1)])
    assert {'"', "-"} == {user[0] for user in store.some_users()}


def test_threads_append_to_one_history_and_none_is_lost(store):
    def append(first):
        for number in range(first, first + 100):
            store.append([interaction("1", number)])

    threads = [threading.Thread(target=append, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    items = store.read("1", 1000).items
    assert len(items) == 400
    for n in range(4):  # each in its own order
        own = [item for item in items if item // 1000 == n]
        assert own == [*range(1000 * n, 1000 * n + 100)]


@pytest.mark.parametrize("keep", [1, BLOCK, 100])
def test_as_many_are_kept_as_was_asked_for(address, keep):
    store = open_store(address, keep=keep, create=True)
    for number in range(300):
        store.append([interaction("1", number), interaction("2", number)])
    store.close()
    store = open_store(address)
    for user in ("1", "2"):
        assert store.read(user, 10**6).items == list(range(300 - keep, 300))
    assert store.users() == 2
    with pytest.raises(StoreError, match=f"made to keep {keep} .* received 7"):
        open_store(address, keep=7)


def test_what_is_no_store_is_reported(address, tmp_path):
    (tmp_path / "notes").write_text("no database, but long enough to look like one. " * 9)
    pytest.importorskip("redis")
    for wrong, create, said in (
        (address, False, "`merlin-sim histories load` makes it"),
        (str(tmp_path / "notes"), False, "notes: expected a store of histories"),
        (str(tmp_path), True, "expected a store of histories"),
        (f"unix://{tmp_path}/none", False, "unix://.*No such file"),
        ("redis://127.0.0.1:notaport/0", False, "redis://"),
    ):
        with pytest.raises(StoreError, match=said):
            open_store(wrong, create=create)


@pytest.mark.slow
def test_a_store_is_filled_whole_or_not_at_all_while_others_read_what_was_there(store, address):
    store.append([interaction("1", 5)])
    with pytest.raises(StoreError, match="expected an empty store"), store.load(overwrite=False):
        pass
    with pytest.raises(ZeroDivisionError), store.load(overwrite=True) as filling:
        filling.append([interaction("2", 6)])
        raise ZeroDivisionError
    child = os.fork()
    if child == 0:
        with open_store(address).load(overwrite=True) as filling:
            filling.append([interaction("2", 6)])
            os._exit(0)
    os.waitpid(child, 0)
    assert (store.read("1", 9).items, store.read("2", 9).items) == ([5], [])
    if "://" in address:  # what a killed filling left is there for a minute
        server = server_at(address)
        assert 0 < server.ttl(FILLING) <= 60
        server.delete(FILLING)
    other = open_store(address)
    with store.load(overwrite=True) as filling:
        filling.append([interaction("2", 6)])
        assert other.read("1", 9).items == [5]
        filling.append([interaction("2", 7), interaction("3", 8)])
    assert [other.read(user, 9).items for user in "123"] == [[], [6, 7], [8]]
    store.append([interaction("2", 9)])
    assert other.read("2", 9).items == [6, 7, 9]
    other.close()


def server_at(address):
    import redis

    return redis.Redis.from_url(address, decode_responses=True)


def test_fillings_of_a_redis_store_do_not_mix_lose_or_leave_anything(redis_address):
    server = server_at(redis_address)
    server.flushdb()
    store, other = open_store(redis_address, create=True), open_store(redis_address)
    with pytest.raises(StoreError, match="interactions came meanwhile; nothing was loaded"):
        with store.load(overwrite=False) as filling:
            filling.append([interaction("1", 6)])
            other.append([interaction("1", 5)])
    assert other.read("1", 9).items == [5]
    with store.load(overwrite=True) as filling:
        filling.append([interaction("1", 6)])
        with pytest.raises(StoreError, match="another one is filling"), other.load(overwrite=True):
            pass
    assert other.read("1", 9).items == [6]
    child = os.fork()
    if child == 0:
        with open_store(redis_address).load(overwrite=True) as filling:
            filling.append([interaction("left", 6)])
            os._exit(0)
    os.waitpid(child, 0)
    server.delete(FILLING)  # a minute later
    with store.load(overwrite=True) as filling:
        filling.append([interaction("1", 7)])
    assert not [key for key in server.keys() if "left" in key]
    assert store.read("1", 9).items == [7]


def test_a_filling_that_clears_what_another_left_stays_the_only_one(redis_address, monkeypatch):
    """However long that takes: as if half a minute went by with every thousand users."""
    import redis

    server = server_at(redis_address)
    server.flushdb()
    store = open_store(redis_address, create=True)
    left = [f"left {number}" for number in range(2500)]
    server.sadd("merlin-sim:histories:2", *left)
    server.hset("merlin-sim:histories", "generations", 2)
    unlink, seconds_left = redis.Redis.unlink, []

    def slow(client, *names):
        seconds_left.append(server.ttl(FILLING))
        server.expire(FILLING, 30)
        return unlink(client, *names)

    monkeypatch.setattr(redis.Redis, "unlink", slow)
    with store.load(overwrite=False) as filling:
        filling.append([interaction("1", 6)])
    assert len(seconds_left) == 3 and min(seconds_left) > 30
    assert store.read("1", 9).items == [6] and not server.exists(FILLING)


@pytest.mark.parametrize("another", [None, "99"])
def test_a_filling_that_stood_still_for_too_long_ends_at_once_and_leaves_nothing(
    redis_address, another
):
    server = server_at(redis_address)
    server.flushdb()
    store = open_store(redis_address, create=True)
    store.append([interaction("1", 5)])
    appended = []
    with pytest.raises(StoreError, match="stood still"), store.load(overwrite=True) as filling:
        filling.append([interaction("left", 6)])
        server.delete(FILLING)  # a minute later
        if another is not None:
            server.set(FILLING, another)
        appended.append(1)
        filling.append([interaction("left", 7)])
        appended.append(2)
    assert appended == [1] and not [key for key in server.keys() if "left" in key]
    assert server.get(FILLING) == another  # which is not its own
    server.delete(FILLING)
    with store.load(overwrite=True) as filling:
        filling.append([interaction("1", 7)])
    assert store.read("1", 9).items == [7]


def test_a_filling_that_has_ended_leaves_alone_what_another_one_fills(redis_address, monkeypatch):
    import redis

    server = server_at(redis_address)
    server.flushdb()
    store = open_store(redis_address, create=True)
    with store.load(overwrite=True) as filling:
        filling.append([interaction(str(user), 5) for user in range(1500)])
    unlink = redis.Redis.unlink

    def slow(client, *names):
        server.set(FILLING, "99")  # a minute later another one began
        return unlink(client, *names)

    monkeypatch.setattr(redis.Redis, "unlink", slow)
    with store.load(overwrite=True) as filling:
        filling.append([interaction("1", 6)])
    assert store.read("1", 9).items == [6]
    assert server.get(FILLING) == "99"
    assert server.scard("merlin-sim:histories:2") == 500  # the other one's to clear


@contextlib.contextmanager
def appending(address, count):
    """Let a process append until it has acknowledged so many; gives it and all that it said."""
    words = [sys.executable, WORKER, address, "1", "0"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        reported = [process.stdout.readline() for _ in range(count)]
        yield process, reported
        reported += process.stdout.readlines()


def last_of(reported):
    return int([line for line in reported if line.endswith("\n")][-1])


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_with_its_process(store, address):
    with appending(address, 400) as (process, reported):
        process.kill()
    found = store.read("1", 10**6).items
    assert found == list(range(len(found)))
    last = last_of(reported)
    assert last <= found[-1] <= last + 1  # one more may have been kept and not said


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_with_the_redis_server(tmp_path):
    with redis_server(tmp_path / "r") as (address, process):
        open_store(address, create=True).close()
        with appending(address, 300) as (_, reported):
            process.kill()
    with redis_server(tmp_path / "r") as (address, _):
        found = open_store(address).read("1", 10**6).items
    assert found == list(range(len(found)))
    assert last_of(reported) <= found[-1]
