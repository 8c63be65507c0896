"""The form of a raw event."""

from __future__ import annotations

import json
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.event import NOT_GIVEN, EventTimes, parse_event
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.servable import Column, ServedColumns


def columns(intervals=False):
    def column(name, domain):
        return Column(name, domain, np.dtype("int64"), 9)

    return ServedColumns(
        users=(column("user", "user"),),
        targets=(column("book_t", "book"), column("genre_t", "genre")),
        histories=(column("book_h", "book"), column("genre_h", "genre")),
        intervals=Column("hours", "hours", np.dtype("float32"), None) if intervals else None,
        longest=3,
        is_ragged=True,
    )


GOOD = {"user": "u", "history": ["a", {"book": "b", "genre": "g"}], "candidates": [{"book": "c"}]}
LIMITS = Limits(max_candidates=3, max_history=4)


def test_keys_and_objects():
    event = parse_event(GOOD, columns(), LIMITS)
    assert event.users == {"user": "u"}
    assert event.history == [("a", NOT_GIVEN), ("b", "g")]
    assert event.candidates == [("c", NOT_GIVEN)]
    assert event.intervals is None


def test_other_keys_are_left_alone_and_null_lists_are_empty():
    event = parse_event(
        {"user": None, "history": None, "candidates": None, "id": 7}, columns(), LIMITS
    )
    assert (event.users, event.history, event.candidates) == ({"user": None}, [], [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user": ...}, "expected the key 'user', received only: 'history', 'candidates'"),
        ({"history": ...}, "expected the key 'history'"),
        ({"candidates": ...}, "expected the key 'candidates'"),
        ({"history": "a"}, "history: expected a list, received 'a'"),
        ({"candidates": {"book": "a"}}, "candidates: expected a list"),
        ({"candidates": list("abcd")}, "candidates: expected at most 3, received 4"),
        ({"history": list("abcde")}, "history: expected at most 4, received 5"),
        ({"history": ["a", {"genre": "g"}]}, r"history\[1\]: expected the key 'book'"),
        ({"history": [{"book": "a", "gener": 1}]}, "expected only book, genre, received 'gener'"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    fields = {k: v for k, v in {**GOOD, **change}.items() if v is not ...}
    with pytest.raises(RequestError, match=message):
        parse_event(fields, columns(), LIMITS)


def test_all_wrong_keys_are_named_at_once():
    fields = {"history": [{"genre": "g"}, "b", {"book": 1, "x": 2, "y": 3}], "candidates": ["a"]}
    with pytest.raises(RequestError) as error:
        parse_event(fields, columns(intervals=True), LIMITS)
    assert str(error.value) == (
        "expected the keys 'user', 'hours', received only: 'history', 'candidates'; "
        "history[0]: expected the key 'book', received: 'genre'; "
        "history[2]: expected only book, genre, received 'x', 'y'"
    )
    with pytest.raises(RequestError, match=r"the keys 'user', 'history', 'candidates', .*: none$"):
        parse_event({}, columns(), LIMITS)
    many = {"user": "u", "history": [], "candidates": [{}] * 30}
    with pytest.raises(RequestError, match=r"candidates\[9\].*; and 20 more$"):
        parse_event(many, columns(), Limits(max_candidates=30))


TIMES = EventTimes("when", "hours", None, 3600.0)


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (7200, [0, 3600]),
        ("7200", ["0", "3600"]),
        ("1970-01-01 02:00:00", ["1970-01-01T00:00:00Z", 3600]),
        (datetime(1970, 1, 1, 2), [datetime(1970, 1, 1), datetime(1970, 1, 1, 1)]),
        (7200.0, ["1970-01-01", "1970-01-01 01:00:00"]),
    ],
)
def test_times_become_time_intervals(now, then):
    fields = {**GOOD, "when": now, "history_times": then}
    event = parse_event(fields, columns(intervals=True), LIMITS, times=TIMES)
    assert event.intervals == [2, 1]


def test_numbers_count_the_unit_of_the_log():
    fields = {**GOOD, "when": 7_200_000, "history_times": [0, 3_600_000]}
    times = EventTimes("when", "hours", "ms", 3600.0)
    assert parse_event(fields, columns(intervals=True), LIMITS, times=times).intervals == [2, 1]


def test_intervals_are_still_read_where_times_could_be_given():
    fields = {**GOOD, "hours": [2, 1]}
    event = parse_event(fields, columns(intervals=True), LIMITS, times=TIMES)
    assert event.intervals == [2, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"when": ...}, "expected the key 'when'"),
        ({"when": ..., "history_times": ...}, "expected the keys 'history_times', 'when'"),
        ({"hours": [2, 1]}, "expected either 'history_times' or 'hours', received both"),
        ({"history_times": [0]}, "history_times: expected 2 times, one for each .* received 1"),
        ({"history_times": 5}, "history_times: expected a list, received 5"),
        ({"history_times": [0, None]}, r"history_times\[1\]: expected a date .* received None"),
        ({"history_times": [0, "soon"]}, r"history_times\[1\]: expected a date .* 'soon'"),
        ({"history_times": [0, [1]]}, r"history_times\[1\]: expected a date"),
        ({"history_times": [0, 10**400]}, r"history_times\[1\]: expected a date"),
        ({"history_times": [0, "\ud800"]}, r"history_times\[1\]: expected a date"),
        ({"history_times": [9000, 0]}, r"history_times\[0\]: expected a time not after 'when'"),
        ({"when": True}, "when: expected a date and time .* received True"),
        ({"when": float("nan")}, "when: expected a date and time"),
    ],
)
def test_what_is_wrong_with_times_is_named(change, message):
    fields = {**GOOD, "when": 7200, "history_times": [0, 3600], **change}
    fields = {name: value for name, value in fields.items() if value is not ...}
    with pytest.raises(RequestError, match=message):
        parse_event(fields, columns(intervals=True), LIMITS, times=TIMES)


@pytest.mark.parametrize("fields", [None, [], "x", 3])
def test_an_event_is_an_object(fields):
    with pytest.raises(RequestError, match="expected an object"):
        parse_event(fields, columns(), LIMITS)


def test_time_intervals_go_with_the_history():
    fields = {**GOOD, "hours": [1, 2.5]}
    assert parse_event(fields, columns(intervals=True), LIMITS).intervals == [1, 2.5]
    with pytest.raises(RequestError, match="expected the key 'hours'"):
        parse_event(GOOD, columns(intervals=True), LIMITS)
    with pytest.raises(RequestError, match="expected 2 numbers"):
        parse_event({**GOOD, "hours": [1]}, columns(intervals=True), LIMITS)
    for wrong in ("x", True, None, float("nan"), float("inf"), 1e39, -(10**400)):
        with pytest.raises(RequestError, match=r"hours\[1\]: expected a number"):
            parse_event({**GOOD, "hours": [1, wrong]}, columns(intervals=True), LIMITS)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["user", "history", "candidates", "book", "genre", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(anything)
def test_whatever_comes_is_an_event_or_refused(fields):
    try:
        event = parse_event(fields, columns(), LIMITS)
    except RequestError as error:
        assert str(error)
    else:
        assert len(event.candidates) <= 3
        json.dumps(list(event.users))
