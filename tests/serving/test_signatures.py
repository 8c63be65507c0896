"""What is cut comes together again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.servable import Column, ServedColumns
from merlin_sim.serving.signatures import (
    IdsRequest,
    candidate_parts,
    check_request,
    merge_requests,
    row_parts,
)


def three_columns(is_ragged):
    def column(name):
        return Column(name, name, np.dtype("int64"), 99)

    return ServedColumns(
        (column("user"),), (column("book"),), (column("read"),), None, 3, is_ragged
    )


def rows(is_ragged):
    tensors = {"user": np.arange(5), "book": np.arange(10, 15)}
    if is_ragged:
        offsets = np.array([0, 2, 2, 5, 6, 8], np.int32)
        return tensors | {"read__values": np.arange(8), "read__offsets": offsets}
    return tensors | {"read": np.arange(15).reshape(5, 3)}


@pytest.mark.parametrize("most", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("is_ragged", [True, False])
def test_rows(is_ragged, most):
    whole = rows(is_ragged)
    parts = list(row_parts(whole, three_columns(is_ragged), most))
    assert [len(part["book"]) for part in parts] == [
        len(r) for r in np.split(range(5), range(most, 5, most))
    ]
    requests = [IdsRequest(part, len(part["book"]), False) for part in parts]
    merged = merge_requests(requests, three_columns(is_ragged))
    for name, expected in whole.items():
        np.testing.assert_array_equal(merged[name], expected)
    if is_ragged:
        assert all(part["read__offsets"][0] == 0 for part in parts)
        assert parts[0]["read__offsets"].dtype == np.int32


def test_candidates_keep_their_user():
    whole = {"user": np.array([7]), "book": np.arange(5), "read": np.ones([1, 3])}
    parts = list(candidate_parts(whole, three_columns(False), 2))
    assert [part["book"].tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert all(part["user"].tolist() == [7] and part["read"].shape == (1, 3) for part in parts)


def test_no_rows_are_one_empty_part():
    empty = {"user": np.zeros(0), "book": np.zeros(0), "read": np.zeros([0, 3])}
    assert [len(part["book"]) for part in row_parts(empty, three_columns(False), 4)] == [0]
    assert [len(part["book"]) for part in candidate_parts(empty, three_columns(False), 4)] == [0]


LIMITS = Limits(max_candidates=4, max_history=5)


def columns(is_ragged=True):
    def column(name, largest):
        return Column(name, name, np.dtype("int64"), largest)

    return ServedColumns(
        (column("user", 9),),
        (column("book", 20),),
        (column("read", 20),),
        None,
        longest=3,
        is_ragged=is_ragged,
    )


def request(rows=2, **changes):
    tensors = {
        "user": np.arange(1, rows + 1),
        "book": np.arange(11, rows + 11),
        "read__values": np.arange(1, rows + 1),
        "read__offsets": np.arange(rows + 1, dtype=np.int32),
    }
    tensors |= changes
    return {name: value for name, value in tensors.items() if value is not None}


def ints(*values):
    return np.array(values, np.int64)


def offsets(*values):
    return np.array(values, np.int32)


def test_a_sound_request():
    checked = check_request(request(), columns(), LIMITS)
    assert (checked.rows, checked.is_one_user) == (2, False)


def test_one_user_goes_with_all_candidates():
    one = request(user=ints(1), read__values=ints(4, 5), read__offsets=offsets(0, 2))
    checked = check_request(one, columns(), LIMITS)
    assert (checked.rows, checked.is_one_user) == (2, True)
    assert not check_request(request(rows=1), columns(), LIMITS).is_one_user
    none = {**one, "book": ints()}
    assert check_request(none, columns(), LIMITS).is_one_user
    assert check_request(request(rows=0), columns(), LIMITS).rows == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"user": None}, "user: missing"),
        ({"book": None}, "book: missing"),
        ({"user": np.array([1, 2], np.int32)}, "user: expected int64, received int32"),
        ({"user": ints(1, 2)[:, None]}, r"user: expected the shape \[-1\], received \[2, 1\]"),
        ({"user": ints(1, 2, 3)}, "rows of the user's columns: expected 2 or 1, received 3"),
        ({"book": ints(1, 2, 3)}, "expected 3 or 1, received 2"),
        ({"book": ints(1, 2, 3, 4, 5)}, "book: rows: expected at most 4, received 5"),
        ({"user": ints(1, 10)}, "user: expected ids from 0 to 9, received 10"),
        ({"book": ints(-1, 10)}, "book: expected ids from 0 to 20, received -1"),
        ({"read__values": ints(1, 21)}, "read__values: expected ids from 0 to 20, received 21"),
        ({"read__offsets": offsets(0, 2)}, "rows [+] 1: expected 3, received 2"),
        ({"read__offsets": offsets(1, 1, 2)}, "read__offsets: expected offsets from 0"),
        ({"read__offsets": offsets(0, 1, 1)}, "read__offsets: expected offsets from 0"),
        ({"read__offsets": offsets(0, 3, 2)}, "nowhere falling"),
        (
            {"read__values": ints(*[1] * 6), "read__offsets": offsets(0, 6, 6)},
            "read: expected at most 5, received 6",
        ),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(RequestError, match=message):
        check_request(request(**changes), columns(), LIMITS)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(wrong):
    def number(name):
        return Column(name, name, np.dtype("float32"), None)

    rows = ServedColumns((), (number("age"), number("price")), (), None, longest=0, is_ragged=False)
    good = {"age": np.float32([1, 2]), "price": np.float32([-3, 1e38])}
    assert check_request(good, rows, LIMITS).rows == 2
    with pytest.raises(RequestError, match=f"price: expected numbers, received {wrong}"):
        check_request({**good, "price": np.float32([1, wrong])}, rows, LIMITS)
    with_hours = replace(columns(), intervals=number("hours"))
    hours = {"hours__values": np.float32([1, wrong]), "hours__offsets": offsets(0, 1, 2)}
    with pytest.raises(RequestError, match="hours__values: expected numbers"):
        check_request(request(**hours), with_hours, LIMITS)


def test_padded_histories():
    padded = {"user": ints(1, 2), "book": ints(3, 4), "read": np.zeros((2, 3), np.int64)}
    assert check_request(padded, columns(is_ragged=False), LIMITS).rows == 2
    padded["read"] = np.zeros((2, 4), np.int64)
    with pytest.raises(RequestError, match=r"read: expected the shape \[-1, 3\]"):
        check_request(padded, columns(is_ragged=False), LIMITS)
    padded["read"] = np.zeros((1, 3), np.int64)
    with pytest.raises(RequestError, match="read: expected 2, received 1"):
        check_request(padded, columns(is_ragged=False), LIMITS)


def test_merged_requests_are_their_rows_one_after_the_other():
    first = request(read__values=ints(1, 2, 3), read__offsets=offsets(0, 1, 3))
    second = request(rows=1, read__values=ints(), read__offsets=offsets(0, 0))
    third = request(rows=1, read__values=ints(7, 8), read__offsets=offsets(0, 2))
    requests = [check_request(r, columns(), LIMITS) for r in (first, second, third)]
    merged = merge_requests(requests, columns())
    assert merged["user"].tolist() == [1, 2, 1, 1]
    assert merged["read__values"].tolist() == [1, 2, 3, 7, 8]
    assert merged["read__offsets"].tolist() == [0, 1, 3, 3, 5]
    assert merged["read__offsets"].dtype == np.int32
