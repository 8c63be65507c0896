"""The form of a raw event."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.serving.events.event import NOT_GIVEN, parse_event
from merlin_sim.serving.limits import Limits, RequestError
from merlin_sim.serving.servables.served_columns import Column, ServedColumns


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
