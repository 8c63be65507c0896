"""What waits is merged, what fails fails alone, what was taken is answered."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from merlin_sim.serving.servable import Column, ServedColumns
from merlin_sim.serving.signatures import IdsRequest
from merlin_sim.serving.workers import ids_model as merging
from merlin_sim.serving.workers.ids_model import MergingWorker

COLUMN = Column("book", "book", np.dtype("int64"), 9)
COLUMNS = ServedColumns((), (COLUMN,), (), None, 3, True)


class HeldScorer:
    """Scores a book by its id; waits for `go` in each call."""

    columns = COLUMNS

    def __init__(self):
        self.go = threading.Event()
        self.calls = []

    def score_ids(self, tensors):
        assert self.go.wait(100)
        books = tensors["book"]
        self.calls.append(books.tolist())
        if 13 in books:
            raise ValueError("13 again")
        return books.astype(np.float32)

    def score_candidates(self, tensors):
        return -self.score_ids(tensors)


def request(*books, is_one_user=False):
    return IdsRequest({"book": np.array(books)}, len(books), is_one_user)


@pytest.fixture
def answers():
    return {}


@pytest.fixture
def scorer():
    return HeldScorer()


def run(scorer, answers, *requests, observe=lambda requests, rows: None):
    """Submit requests while the first one is held, let go, and close."""
    worker = MergingWorker(scorer, observe)
    for place, entry in enumerate(requests):
        worker.submit(entry, lambda result, place=place: answers.__setitem__(place, result))
    scorer.go.set()
    worker.close()
    return [
        answers[place] if isinstance(answers[place], Exception) else answers[place].tolist()
        for place in range(len(requests))
    ]


def test_what_waited_is_scored_in_one_call(scorer, answers):
    seen = []
    entries = [request(1), request(2, 3), request(4), request(5, 6)]
    results = run(scorer, answers, *entries, observe=lambda *counts: seen.append(counts))
    assert results == [[1], [2, 3], [4], [5, 6]]
    assert sum(scorer.calls, []) == [1, 2, 3, 4, 5, 6]
    assert len(scorer.calls) <= 2  # the first alone, if it was taken before the others came
    assert (sum(n for n, _ in seen), sum(rows for _, rows in seen)) == (4, 6)


def test_one_that_fails_hurts_nobody_else(scorer, answers):
    results = run(scorer, answers, request(1), request(2), request(13), request(4))
    assert (results[0], results[1], results[3]) == ([1], [2], [4])
    assert isinstance(results[2], ValueError)


def test_one_user_is_scored_by_itself(scorer, answers):
    one = request(2, 3, is_one_user=True)
    results = run(scorer, answers, request(1), one, request(4), one)
    assert results == [[1], [-2, -3], [4], [-2, -3]]
    assert [2, 3] in scorer.calls and scorer.calls[-1] == [2, 3]


def test_calls_are_bounded(scorer, answers, monkeypatch):
    monkeypatch.setattr(merging, "ROWS_PER_CALL", 4)
    results = run(scorer, answers, *(request(i, i) for i in range(7)))
    assert results == [[i, i] for i in range(7)]
    assert max(map(len, scorer.calls)) <= 4
