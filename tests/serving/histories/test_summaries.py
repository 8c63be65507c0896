"""Stores keep a summary of each user's history, and know what is not in it.

The model of these tests sums items up that are numbers.
"""

from __future__ import annotations

import random
import threading

import pytest

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import History, Interaction, StoreError

A, B = "a model", "another"
NEWEST = 4


def interactions(user, items):
    return [Interaction(user, str(item)) for item in items]


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


def test_of_a_history_that_is_read_whole_nothing_is_kept(store):
    store.append(interactions("1", range(NEWEST - 1)))
    assert read(store, "1") == (History([0, 1, 2], [None] * 3), None, [0, 1, 2], None)
    assert read(store, "2") == (History([], []), None, [], None)


def test_appends_grow_what_is_not_in_the_summary_yet(store):
    store.append(interactions("1", range(6)))
    assert read(store, "1").since == [0, 1, 2, 3, 4, 5]
    assert grow(store, "1") == 15
    found = read(store, "1")
    assert (found.newest.items, found.summary, found.since) == ([2, 3, 4, 5], b"15", [])
    store.append([Interaction("1", "7", 5), Interaction("1", "8", 3)])
    found = read(store, "1")
    assert (found.newest.items, found.since) == ([4, 5, 8, 7], [7, 8])
    store.append(interactions("1", [9]))  # after it was read
    store.keep_summary("1", A, b"30", found.mark)
    assert (read(store, "1").summary, read(store, "1").since) == (b"30", [9])


def test_of_two_who_read_the_same_one_keeps_it(store):
    store.append(interactions("1", range(6)))
    first, second = read(store, "1"), read(store, "1")
    store.keep_summary("1", A, b"15", first.mark)
    store.append(interactions("1", [7]))
    store.keep_summary("1", A, b"16", second.mark)
    assert (read(store, "1").summary, read(store, "1").since) == (b"15", [7])


def test_another_models_summary_is_never_read(store):
    store.append(interactions("1", range(6)))
    before = read(store, "1")
    assert grow(store, "1") == 15
    found = read(store, "1", B)
    assert (found.summary, found.since) == (None, [0, 1, 2, 3, 4, 5])
    store.keep_summary("1", A, b"99", before.mark)
    assert read(store, "1", B) == found
    again = read(store, "1")
    assert (again.summary, again.since) == (None, [0, 1, 2, 3, 4, 5])
    store.keep_summary("1", A, b"99", before.mark)
    assert read(store, "1") == again


def test_who_is_forgotten_stays_so(store):
    store.append(interactions("1", range(6)))
    found = read(store, "1")
    assert store.delete("1") == 6
    store.keep_summary("1", A, b"15", found.mark)
    assert read(store, "1") == (History([], []), None, [], None)
    store.append(interactions("1", range(7)))
    assert read(store, "1").summary is None and total(read(store, "1")) == 21


def test_no_users_key_is_taken_for_anothers_summary(store):
    store.append(interactions("1", range(6)))
    assert grow(store, "1") == 15
    others = ["1:summary", "1:since", "summary:1", "since:1"]
    for user in others:
        store.append(interactions(user, range(7)))
        assert grow(store, user) == 21
        store.append(interactions(user, [1]))
        assert total(read(store, user)) == 22
    store.append(interactions("1", [7]))
    assert total(read(store, "1")) == 22
    assert [store.delete(user) for user in others] == [8] * 4
    assert total(read(store, "1")) == 22


def test_a_store_that_is_filled_anew_has_no_summaries(store):
    store.append(interactions("1", range(6)))
    assert grow(store, "1") == 15
    with store.load(overwrite=True) as filling:
        filling.append(interactions("1", range(5)))
    found = read(store, "1")
    assert (found.summary, found.since) == (None, [0, 1, 2, 3, 4])


def test_what_goes_stays_in_the_summary(address):
    store = open_store(address, keep=2, create=True)
    store.append(interactions("1", range(2)))
    for item in range(2, 50):
        if item % 7 == 2:
            grow(store, "1")
        store.append(interactions("1", [item]))
    assert read(store, "1").newest.items == [48, 49]
    assert total(read(store, "1")) == sum(range(50))
    store.close()


@pytest.mark.parametrize("seed", range(3))
def test_summary_and_rest_are_the_whole_history_whatever_happens(store, seed):
    draws, expected, marks = random.Random(seed), {"1": 0, "2": 0}, []
    for number in range(200):
        user, model = draws.choice(["1", "2"]), draws.choice([A, A, A, B])
        action = draws.randrange(5)
        if action < 2:
            items = [draws.randrange(99) for _ in range(draws.choice([1, 3]))]
            time = draws.choice([None, number, draws.randrange(number + 1)])
            store.append([Interaction(user, str(item), time) for item in items])
            expected[user] += sum(items)
        elif action == 2:
            grow(store, user, model)
        elif action == 3:
            found = read(store, user, model)
            marks += [(user, model, found)] if found.mark else []
        elif marks:  # of one who was slow
            user, model, found = draws.choice(marks)
            store.keep_summary(user, model, str(total(found)).encode(), found.mark)
        for user in expected:
            assert total(read(store, user, A)) == expected[user]


def test_a_damaged_summary_is_refused(store):
    store.append(interactions("1", range(6)))
    assert grow(store, "1") == 15
    store.append([Interaction("1", "{", 0)])  # older than what is read besides
    (found,) = store.read_summed(["1"], NEWEST, A)
    assert isinstance(found, StoreError)


def test_a_request_waits_for_no_other_writer_of_a_file(tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    store.append(interactions("1", range(6)) + interactions("2", range(6)))
    begun = read(store, "1")
    with open_store(str(tmp_path / "store")).load(overwrite=True):
        found = read(store, "2")
        assert (found.summary, found.since, found.mark) == (None, [0, 1, 2, 3, 4, 5], None)
        with pytest.raises(StoreError, match="locked"):
            store.keep_summary("1", A, b"15", begun.mark)
        assert read(store, "1") == begun


def test_nothing_is_lost_or_counted_twice_while_several_append_and_grow(store):
    store.append(interactions("1", range(NEWEST)))

    def append(first):
        for number in range(first, first + 50):
            store.append(interactions("1", [number]))

    def grow_often():
        for _ in range(50):
            grow(store, "1")

    threads = [threading.Thread(target=append, args=(first,)) for first in (100, 1000)]
    threads += [threading.Thread(target=grow_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total(read(store, "1")) == sum(store.read("1", 999).items)
    assert grow(store, "1") == total(read(store, "1")) and read(store, "1").since == []
