"""Scores of events are the model's own."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.serving import scorer as module
from merlin_sim.serving.scorer import call_signature
from merlin_sim.serving.signatures import one_user_batch, plain_batch


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


@pytest.fixture(autouse=True)
def restore(scorer):
    before = scorer.one_user_from
    yield
    scorer.one_user_from = before


@pytest.mark.parametrize("one_user_from", [None, 1])
def test_raw_events_of_the_test_rows_get_the_scores_of_evaluate(
    scorer, encoded, expected, one_user_from
):
    scorer.one_user_from = one_user_from
    scores = np.concatenate(scorer.score_events(encoded))
    assert np.ptp(expected) > 0.01
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_one_user_with_many_candidates_has_the_scores_of_the_plain_batch(scorer, many):
    scorer.one_user_from = None
    plain = scorer.score_events(many)
    scorer.one_user_from = 1
    for left, right in zip(plain, scorer.score_events(many), strict=True):
        assert np.ptp(left) > 0.01
        np.testing.assert_allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("one_user_from", [None, 1, 4])
def test_events_are_cut_and_merged_without_mixing_them_up(
    scorer, encoded, many, one_user_from, monkeypatch
):
    scorer.one_user_from = None
    mixed = [encoded[0], many[0], encoded[1], many[1], encoded[2]]
    whole = scorer.score_events(mixed)
    scorer.one_user_from = one_user_from
    monkeypatch.setattr(module, "ROWS_PER_CALL", 7)
    for left, right in zip(whole, scorer.score_events(mixed), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("one_user_from", [None, 0])
def test_nothing_to_score(scorer, encoder, one_user_from):
    scorer.one_user_from = one_user_from
    fields = {"user_id": None, "history": [], "candidates": []}
    empty = encoder.encode(encoder.parse(fields))
    assert [len(scores) for scores in scorer.score_events([empty, empty])] == [0, 0]
    assert scorer.score_events([]) == []


@pytest.mark.parametrize("rows", [1, 5, 14])
def test_requests_of_ids_are_cut_too(scorer, encoded, many, rows, monkeypatch):
    plain = plain_batch(encoded[:14], scorer.columns)
    one_user = one_user_batch(many[0], scorer.columns)
    whole = scorer.score_ids(plain), scorer.score_candidates(one_user)
    called = []
    run = scorer._whole.plain

    def counted(**tensors):
        called.append(len(tensors["user_id"]))
        return run(**tensors)

    monkeypatch.setattr(module, "ROWS_PER_CALL", rows)
    monkeypatch.setattr(scorer, "_whole", scorer._whole._replace(plain=counted))
    np.testing.assert_allclose(scorer.score_ids(plain), whole[0], atol=1e-5)
    np.testing.assert_allclose(scorer.score_candidates(one_user), whole[1], atol=1e-5)
    assert (sum(called), max(called)) == (14, rows)


def test_a_plain_batch_repeats_the_user(encoded, scorer):
    rows = plain_batch([encoded[0], encoded[1]], scorer.columns)
    lengths = [len(event.histories["item_id_pos"]) for event in encoded[:2]]
    assert rows["item_id_pos__offsets"].tolist() == [0, lengths[0], sum(lengths)]
    assert rows["item_id_pos__offsets"].dtype == np.int32


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
    assert blocks_after(500) - before < 100  # 1,500 where it was not let go
