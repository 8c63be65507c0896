"""Scores of events are the model's own; what is cut for it comes together again."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving import scorer as module
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.scorer import call_signature
from merlin_sim.serving.servable import ServedColumn, ServedColumns
from merlin_sim.serving.signatures import (
    IdsRequest,
    candidate_parts,
    check_request,
    merge_requests,
    one_user_batch,
    plain_batch,
    row_parts,
)


@pytest.fixture
def encoded(encoder, events):
    return [encoder.encode(encoder.parse(event)) for event in events]


@pytest.fixture
def many(encoder, events):
    """Each user with the candidates of everybody."""
    candidates = [key for event in events for key in event["candidates"]]
    return [
        encoder.encode(encoder.parse({**event, "candidates": candidates})) for event in events[:3]
    ]


@pytest.mark.slow
def test_raw_events_of_the_test_rows_get_the_scores_of_evaluate(
    scorer, encoder, encoded, many, expected, monkeypatch
):
    """As rows or as one user with many candidates, together or cut and merged."""
    assert np.ptp(expected) > 0.01
    mixed = [encoded[0], many[0], encoded[1], many[1], encoded[2]]
    empty = encoder.encode(encoder.parse({"user_id": None, "history": [], "candidates": []}))
    monkeypatch.setattr(scorer, "one_user_from", None)
    whole = scorer.score_events(mixed)
    assert min(map(np.ptp, whole[1::2])) > 0.01
    for one_user_from in (None, 0, 1, 4):
        scorer.one_user_from = one_user_from
        scores = np.concatenate(scorer.score_events(encoded))
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        assert [len(scores) for scores in scorer.score_events([empty, empty])] == [0, 0]
        assert scorer.score_events([]) == []
        for rows in (module.ROWS_PER_CALL, 7):
            with monkeypatch.context() as during:
                during.setattr(module, "ROWS_PER_CALL", rows)
                found = scorer.score_events(mixed)
            for left, right in zip(whole, found, strict=True):
                np.testing.assert_allclose(left, right, atol=1e-5)


def test_requests_of_ids_are_cut_too(scorer, encoded, many, monkeypatch):
    plain = plain_batch(encoded[:14], scorer.columns)
    one_user = one_user_batch(many[0], scorer.columns)
    whole = scorer.score_ids(plain), scorer.score_candidates(one_user)
    called, call = [], module.call_signature

    def counted(signature, tensors, output):
        called.append(len(tensors["item_id_trgt"]))
        return call(signature, tensors, output)

    monkeypatch.setattr(module, "ROWS_PER_CALL", 5)
    monkeypatch.setattr(module, "call_signature", counted)
    np.testing.assert_allclose(scorer.score_ids(plain), whole[0], atol=1e-5)
    assert called == [5, 5, 4]
    np.testing.assert_allclose(scorer.score_candidates(one_user), whole[1], atol=1e-5)
    assert max(called) == 5


@pytest.mark.slow
def test_calls_leave_nothing_in_memory():
    """TensorFlow on Python 3.11 leaves a block of memory of every tensor that Python has seen."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")], autograph=False)
    def doubled(x):
        return {"y": 2 * x, "also": x + 1}

    signature = doubled.get_concrete_function()
    given = {"x": np.arange(3, dtype=np.float32)}

    def blocks_after(calls):
        for _ in range(calls):
            np.testing.assert_array_equal(call_signature(signature, given, "y"), 2 * given["x"])
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(50)
    assert blocks_after(200) - before < 100  # 600 where it was not let go


def three_columns(is_ragged=True):
    def column(name, largest):
        return ServedColumn(name, name, np.dtype("int64"), largest)

    return ServedColumns(
        (column("user", 9),),
        (column("book", 20),),
        (column("read", 20),),
        None,
        longest=3,
        is_ragged=is_ragged,
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
        assert merged[name].dtype == expected.dtype
    if is_ragged:
        assert all(part["read__offsets"][0] == 0 for part in parts)
        assert parts[0]["read__offsets"].dtype == np.int32


def test_candidates_keep_their_user_and_no_rows_are_one_empty_part():
    padded = three_columns(False)
    whole = {"user": np.array([7]), "book": np.arange(5), "read": np.ones([1, 3])}
    parts = list(candidate_parts(whole, padded, 2))
    assert [part["book"].tolist() for part in parts] == [[0, 1], [2, 3], [4]]
    assert all(part["user"].tolist() == [7] and part["read"].shape == (1, 3) for part in parts)
    empty = {"user": np.zeros(0), "book": np.zeros(0), "read": np.zeros([0, 3])}
    for cut in (row_parts, candidate_parts):
        assert [len(part["book"]) for part in cut(empty, padded, 4)] == [0]


LIMITS = Limits(max_candidates=4, max_history=5)


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


def test_sound_requests_of_rows_or_of_one_user_with_all_candidates():
    one = request(user=ints(1), read__values=ints(4, 5), read__offsets=offsets(0, 2))
    for given, rows, is_one_user in (
        (request(), 2, False),
        (one, 2, True),
        ({**one, "book": ints()}, 0, True),
        (request(rows=1), 1, False),
        (request(rows=0), 0, False),
    ):
        checked = check_request(given, three_columns(), LIMITS)
        assert (checked.rows, checked.is_one_user) == (rows, is_one_user)


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
        check_request(request(**changes), three_columns(), LIMITS)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(wrong):
    def number(name):
        return ServedColumn(name, name, np.dtype("float32"), None)

    rows = ServedColumns((), (number("age"), number("price")), (), None, longest=0, is_ragged=False)
    good = {"age": np.float32([1, 2]), "price": np.float32([-3, 1e38])}
    assert check_request(good, rows, LIMITS).rows == 2
    with pytest.raises(RequestError, match=f"price: expected numbers, received {wrong}"):
        check_request({**good, "price": np.float32([1, wrong])}, rows, LIMITS)
    with_hours = replace(three_columns(), intervals=number("hours"))
    hours = {"hours__values": np.float32([1, wrong]), "hours__offsets": offsets(0, 1, 2)}
    with pytest.raises(RequestError, match="hours__values: expected numbers"):
        check_request(request(**hours), with_hours, LIMITS)


def test_padded_histories():
    padded = {"user": ints(1, 2), "book": ints(3, 4), "read": np.zeros((2, 3), np.int64)}
    assert check_request(padded, three_columns(is_ragged=False), LIMITS).rows == 2
    padded["read"] = np.zeros((2, 4), np.int64)
    with pytest.raises(RequestError, match=r"read: expected the shape \[-1, 3\]"):
        check_request(padded, three_columns(is_ragged=False), LIMITS)
    padded["read"] = np.zeros((1, 3), np.int64)
    with pytest.raises(RequestError, match="read: expected 2, received 1"):
        check_request(padded, three_columns(is_ragged=False), LIMITS)
