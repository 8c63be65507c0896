"""The form of a raw event."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.event import NOT_GIVEN, EventTimes, parse_event
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.servable import ServedColumn, ServedColumns


def columns(intervals=False):
    def column(name, domain):
        return ServedColumn(name, domain, np.dtype("int64"), 9)

    return ServedColumns(
        users=(column("user", "user"),),
        targets=(column("book_t", "book"), column("genre_t", "genre")),
        histories=(column("book_h", "book"), column("genre_h", "genre")),
        intervals=ServedColumn("hours", "hours", np.dtype("float32"), None) if intervals else None,
        longest=3,
        is_ragged=True,
    )


GOOD = {"user": "u", "history": ["a", {"book": "b", "genre": "g"}], "candidates": [{"book": "c"}]}
AGED = {**GOOD, "hours": [1, 2.5]}
TIMED = {**GOOD, "when": 7200, "history_times": [0, 3600]}
LIMITS = Limits(max_candidates=3, max_history=4)
TIMES = EventTimes("when", "hours", None, 3600.0)
PLAIN = {"columns": columns(), "limits": LIMITS}
WITH_HOURS = {"columns": columns(intervals=True), "limits": LIMITS}
WITH_TIMES = {**WITH_HOURS, "times": TIMES}


def test_keys_objects_and_what_may_be_missing():
    event = parse_event(GOOD, **PLAIN)
    assert event.users == {"user": "u"} and event.intervals is None
    assert event.history == [("a", NOT_GIVEN), ("b", "g")]
    assert event.candidates == [("c", NOT_GIVEN)]
    nothing = {"user": None, "history": None, "candidates": None, "id": 7}
    event = parse_event(nothing, **PLAIN)
    assert (event.users, event.history, event.candidates) == ({"user": None}, [], [])
    assert parse_event(AGED, **WITH_HOURS).intervals == [1, 2.5]
    assert parse_event(AGED, **WITH_TIMES).intervals == [1, 2.5]


@pytest.mark.parametrize(
    ("now", "then", "unit"),
    [
        (7200, [0, 3600], None),
        ("7200", ["0", "3600"], None),
        ("1970-01-01 02:00:00", ["1970-01-01T00:00:00Z", 3600], None),
        (datetime(1970, 1, 1, 2), [datetime(1970, 1, 1), datetime(1970, 1, 1, 1)], None),
        (7200.0, ["1970-01-01", "1970-01-01 01:00:00"], None),
        (7_200_000, [0, 3_600_000], "ms"),
    ],
)
def test_times_become_time_intervals_in_the_unit_of_the_log(now, then, unit):
    times = EventTimes("when", "hours", unit, 3600.0)
    fields = {**GOOD, "when": now, "history_times": then}
    assert parse_event(fields, **WITH_HOURS, times=times).intervals == [2, 1]


REFUSED = [
    (PLAIN, GOOD, change, message)
    for change, message in (
        ({"user": ...}, "expected the key 'user', received only: 'history', 'candidates'"),
        ({"history": ...}, "expected the key 'history'"),
        ({"candidates": ...}, "expected the key 'candidates'"),
        ({"history": "a"}, "history: expected a list, received 'a'"),
        ({"candidates": {"book": "a"}}, "candidates: expected a list"),
        ({"candidates": list("abcd")}, "candidates: expected at most 3, received 4"),
        ({"history": list("abcde")}, "history: expected at most 4, received 5"),
        ({"history": ["a", {"genre": "g"}]}, r"history\[1\]: expected the key 'book'"),
        ({"history": [{"book": "a", "gener": 1}]}, "expected only book, genre, received 'gener'"),
    )
]
REFUSED += [
    (WITH_HOURS, AGED, change, message)
    for change, message in (
        ({"hours": ...}, "expected the key 'hours'"),
        ({"hours": [1]}, "expected 2 numbers"),
        *(
            ({"hours": [1, wrong]}, r"hours\[1\]: expected a number")
            for wrong in ("x", True, None, float("nan"), float("inf"), 1e39, -(10**400))
        ),
    )
]
REFUSED += [
    (WITH_TIMES, TIMED, change, message)
    for change, message in (
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
    )
]


@pytest.mark.parametrize(("settings", "good", "change", "message"), REFUSED)
def test_what_is_wrong_is_named(settings, good, change, message):
    fields = {name: value for name, value in {**good, **change}.items() if value is not ...}
    with pytest.raises(RequestError, match=message):
        parse_event(fields, **settings)


def test_all_wrong_keys_are_named_at_once():
    fields = {"history": [{"genre": "g"}, "b", {"book": 1, "x": 2, "y": 3}], "candidates": ["a"]}
    with pytest.raises(RequestError) as error:
        parse_event(fields, **WITH_HOURS)
    assert str(error.value) == (
        "expected the keys 'user', 'hours', received only: 'history', 'candidates'; "
        "history[0]: expected the key 'book', received: 'genre'; "
        "history[2]: expected only book, genre, received 'x', 'y'"
    )
    with pytest.raises(RequestError, match=r"the keys 'user', 'history', 'candidates', .*: none$"):
        parse_event({}, **PLAIN)
    many = {"user": "u", "history": [], "candidates": [{}] * 30}
    with pytest.raises(RequestError, match=r"candidates\[9\].*; and 20 more$"):
        parse_event(many, columns(), Limits(max_candidates=30))
    with pytest.raises(RequestError, match="expected an object"):
        parse_event([], **PLAIN)
