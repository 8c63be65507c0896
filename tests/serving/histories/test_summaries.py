"""Stores keep a summary of each user's history, and know what is not in it.

The model of these tests sums items up that are numbers.
"""

from __future__ import annotations

import functools
import random
import sqlite3
import threading

import pytest

from merlin_sim.serving.histories.file_store import SUMMARY_SECONDS
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import History, Interaction, StoreError

A, B = "a model", "another"
NEWEST = 4
NOTHING = (History([], []), None, [], None)


def append(store, user, items):
    store.append([Interaction(user, str(item)) for item in items])


def read(store, user, model=A, newest=NEWEST):
    (found,) = store.read_summed([user], newest, model)
    assert not isinstance(found, StoreError), found
    return found


def total(found):
    return int(found.summary or b"0") + sum(found.since)


def grow(store, user, model=A):
    found = read(store, user, model)
    if found.mark is not None:
        store.keep_summary(user, model, str(total(found)).encode(), found.mark)
    return total(found)


def test_appends_grow_what_is_not_in_the_summary_yet(store):
    append(store, "2", range(NEWEST - 1))  # is read whole: nothing is kept
    assert read(store, "2") == (History([0, 1, 2], [None] * 3), None, [0, 1, 2], None)
    assert read(store, "3") == NOTHING
    append(store, "1", range(6))
    assert read(store, "1").since == [0, 1, 2, 3, 4, 5]
    assert grow(store, "1") == 15
    found = read(store, "1")
    assert (found.newest.items, found.summary, found.since) == ([2, 3, 4, 5], b"15", [])
    store.append([Interaction("1", "7", 5), Interaction("1", "8", 3)])
    found, another = read(store, "1"), read(store, "1")
    assert (found.newest.items, found.since) == ([4, 5, 8, 7], [7, 8])
    append(store, "1", [9])  # after it was read
    store.keep_summary("1", A, b"30", found.mark)
    store.keep_summary("1", A, b"39", another.mark)  # of two who read the same one keeps it
    assert (read(store, "1").summary, read(store, "1").since) == (b"30", [9])


def test_what_goes_stays_in_the_summary(address):
    store = open_store(address, keep=2, create=True)
    append(store, "1", range(2))
    for item in range(2, 50):
        if item % 7 == 2:
            grow(store, "1")
        append(store, "1", [item])
    assert read(store, "1").newest.items == [48, 49]
    assert total(read(store, "1")) == sum(range(50))
    store.close()


USERS = ["1", "1:summary", "1:since", "summary:1", "since:1"]
"""Of which no key should be taken for what is kept of another."""


@pytest.mark.parametrize("seed", range(3))
def test_summary_and_rest_are_the_whole_history_whatever_happens(store, seed):
    """A model reads no summary of another, of a user that was forgotten, or from before a load."""
    draws, expected, marks = random.Random(seed), dict.fromkeys(USERS, 0), []
    for number in range(300):
        user, model = draws.choice([*USERS, "1", "1"]), draws.choice([A, A, A, B])
        action = draws.randrange(11)
        if action < 4:
            items = [draws.randrange(99) for _ in range(draws.choice([1, 3]))]
            time = draws.choice([None, number, draws.randrange(number + 1)])
            store.append([Interaction(user, str(item), time) for item in items])
            expected[user] += sum(items)
        elif action < 6:
            grow(store, user, model)
        elif action < 8:
            found = read(store, user, model)
            marks += [(user, model, found)] if found.mark else []
        elif action < 10 and marks:  # of one who was slow
            user, model, found = draws.choice(marks)
            store.keep_summary(user, model, str(total(found)).encode(), found.mark)
        elif number % 3 == 0:
            store.delete(user)
            expected[user] = 0
        elif number % 10 == 1:
            with store.load(overwrite=True) as filling:
                append(filling, user, range(7))
            expected = {**dict.fromkeys(USERS, 0), user: 21}
        for user in expected:
            assert total(read(store, user, A)) == expected[user]


def test_nothing_is_lost_or_counted_twice_while_several_append_and_grow(store):
    append(store, "1", range(NEWEST))

    def append_often(first):
        for number in range(first, first + 50):
            append(store, "1", [number])

    def grow_often():
        for _ in range(50):
            grow(store, "1")

    threads = [threading.Thread(target=append_often, args=(first,)) for first in (100, 1000)]
    threads += [threading.Thread(target=grow_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total(read(store, "1")) == sum(store.read("1", 999).items)
    assert grow(store, "1") == total(read(store, "1")) and read(store, "1").since == []
    store.append([Interaction("1", "{", 0)])  # damaged, older than what is read besides
    (found,) = store.read_summed(["1"], NEWEST, A)
    assert isinstance(found, StoreError)


def test_a_request_waits_for_no_other_writer_of_a_file(tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    append(store, "1", range(6))
    append(store, "2", range(6))
    begun = read(store, "1")
    with open_store(str(tmp_path / "store")).load(overwrite=True):
        found = read(store, "2")
        assert (found.summary, found.since, found.mark) == (None, [0, 1, 2, 3, 4, 5], None)
        with pytest.raises(StoreError, match="locked"):
            store.keep_summary("1", A, b"15", begun.mark)
        assert read(store, "1") == begun


def test_of_many_users_one_waits_for_another_writer(tmp_path, monkeypatch):
    waits = []

    class Recording(sqlite3.Connection):
        def execute(self, words, *arguments):
            if "busy_timeout" in words:
                waits.append(int(words.split()[-1]) / 1000)
            return super().execute(words, *arguments)

    store = open_store(str(tmp_path / "store"), create=True)
    users = [str(number) for number in range(6)]
    for user in users:
        append(store, user, range(6))
    begun = read(store, "0")
    store.close()
    monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Recording))
    store = open_store(str(tmp_path / "store"))
    with open_store(str(tmp_path / "store")).load(overwrite=True):
        waits.clear()
        first, *others = store.read_summed(users, NEWEST, A)
        assert first == begun
        assert [(one.since, one.mark) for one in others] == [([0, 1, 2, 3, 4, 5], None)] * 5
        for _ in range(3):
            with pytest.raises(StoreError, match="locked"):
                store.keep_summary("0", A, b"15", begun.mark)
        assert waits == [SUMMARY_SECONDS] + [0.0] * 7
        waits.clear()
    append(store, "1", range(6))
    for _ in range(2):
        assert grow(store, "1") == 15  # others write again
    assert waits[1:] == [0.0] + [SUMMARY_SECONDS] * 2
    store.close()
