"""What waits is merged, what fails fails alone, what was taken is answered, as it was sent."""

from __future__ import annotations

import socket
import sys
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from counted import counting

from merlin_sim.serving.servable import ServedColumn, ServedColumns
from merlin_sim.serving.settings import ModelSettings
from merlin_sim.serving.signatures import IdsRequest
from merlin_sim.serving.workers import ids_model as merging
from merlin_sim.serving.workers import protocol
from merlin_sim.serving.workers.ids_model import SoundRequest, merged_calls, score_requests
from merlin_sim.serving.workers.protocol import receive_frame, send_frame
from merlin_sim.serving.workers.worker import WARM_UPS, TritonRequest, Worker, answer_apart

COLUMN = ServedColumn("book", "book", np.dtype("int64"), 9)
COLUMNS = ServedColumns((), (COLUMN,), (), None, 3, True)


class ListedScorer:
    """Scores a book by its id, and lists the calls."""

    columns = COLUMNS

    def __init__(self):
        self.calls = []

    def score_ids(self, tensors):
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
def scorer():
    return ListedScorer()


def run(scorer, *requests):
    """Score requests that came together, in as many calls as it takes."""
    results = []
    for group in merged_calls([SoundRequest(n, one, False) for n, one in enumerate(requests)]):
        results += answer_apart(partial(score_requests, scorer), [one.request for one in group])
    return [one if isinstance(one, Exception) else one.tolist() for one in results]


def test_what_came_together_is_scored_in_one_call_but_for_one_users(scorer):
    one = request(2, 3, is_one_user=True)
    results = run(scorer, request(1), request(2, 3), one, request(4), request(5, 6), one)
    assert results == [[1], [2, 3], [-2, -3], [4], [5, 6], [-2, -3]]
    assert scorer.calls == [[1, 2, 3], [2, 3], [4, 5, 6], [2, 3]]


def test_one_that_fails_hurts_nobody_else_and_calls_are_bounded(scorer, monkeypatch):
    results = run(scorer, request(1), request(2), request(13), request(4))
    assert isinstance(results.pop(2), ValueError) and results == [[1], [2], [4]]
    scorer.calls.clear()
    monkeypatch.setattr(merging, "ROWS_PER_CALL", 4)
    results = run(scorer, *(request(i, i) for i in range(7)))
    assert results == [[i, i] for i in range(7)]
    assert max(map(len, scorer.calls)) <= 4


def test_calls_requests_and_rows_are_counted_but_for_probes(scorer, monkeypatch):
    monkeypatch.setattr(merging, "check_request", lambda tensors, columns, limits: tensors)
    monkeypatch.setattr(merging, "Scorer", lambda servable: scorer)
    monkeypatch.setattr(merging.Servable, "open", lambda path: None)
    counted = counting()
    model = merging.IdsModel(SimpleNamespace(limits=None, servable=None, number="counted"))
    asked = [request(1), request(2, 3), request(4), request(5, 6)]
    taken = [TritonRequest(one, frozenset(), is_probe=False) for one in asked]
    taken.insert(2, TritonRequest(request(7, 8, 9), frozenset(), is_probe=True))
    model.take(taken, lambda index, result: None)
    names = ("model_calls", "requests", "rows")
    found = [counted(f"merlin_sim_ids_{name}_total", version="counted") for name in names]
    assert found == [1, 4, 6] and len(scorer.calls) == 1


class ListedModel:
    """Lists how many requests came together; a call takes until all have been read."""

    def __init__(self, merges):
        self.merges, self.together, self.closed = merges, [], 0

    def take(self, requests, reply):
        for thread in threading.enumerate():
            if thread.name == "requests":
                thread.join(100)
        self.together.append(len(requests))
        for index in range(len(requests)):
            reply(index, {"score": np.zeros(1)})

    def probe(self):
        return {}

    def close(self):
        self.closed += 1


@pytest.fixture
def opening(tmp_path, monkeypatch):
    """Let a worker load a model; gives the message that asks for it."""

    def opening(model):
        found = SimpleNamespace(ListedModel=lambda settings: model)
        monkeypatch.setitem(sys.modules, "listed", found)
        ModelSettings(tmp_path, version=3, workers={"ids": "listed.ListedModel"}).write(tmp_path)
        return {"folder": str(tmp_path), "model": "ids"}

    return opening


@pytest.mark.parametrize("merges", [True, False])
def test_what_came_while_a_model_worked_is_taken_together_where_it_merges(merges, opening):
    model = ListedModel(merges)
    here, there = socket.socketpair()
    with here, there:
        worker = threading.Thread(target=Worker(there).run)
        worker.start()
        send_frame(here, opening(model))
        assert receive_frame(here).message["kind"] == protocol.READY
        for number in range(20):
            send_frame(here, {"requests": [[number, [], False]]})
        here.shutdown(socket.SHUT_WR)
        answered = [receive_frame(here).message["request"] for _ in range(20)]
        worker.join()
    together = model.together[WARM_UPS:]
    assert answered == list(range(20)) and sum(together) == 20
    assert len(together) <= 2 if merges else together == [1] * 20


def test_a_request_that_cannot_be_read_ends_the_worker(opening, monkeypatch):
    """Its stub starts another; one that waited on would hold its requests for good."""
    model, read = ListedModel(False), []

    def receive(connection):
        read.append(connection)
        if len(read) > 2:
            raise MemoryError("no room for a frame")
        return receive_frame(connection)

    monkeypatch.setattr(protocol, "receive_frame", receive)
    here, there = socket.socketpair()
    with here, there:
        send_frame(here, opening(model))
        send_frame(here, {"requests": [[0, [], False]]})
        with pytest.raises(MemoryError, match="no room"):
            Worker(there).run()
    assert model.together == [1] * (WARM_UPS + 1) and model.closed == 1


def test_arrays_come_as_they_were_sent_and_what_is_cut_off_is_none():
    tensors = {
        "more than a socket holds": np.arange(3_000_000),
        "no rows": np.zeros((0, 3), np.int32),
        "scores": np.float32([[0.5, np.nan]]),
        "": np.array([[[True], [False]]]),
        "texts": np.array([[b""], [b"\0\xff"], ["Ä".encode()]], object),
    }
    here, there = socket.socketpair()
    with here, there:
        message = {"kind": "answer"}
        sending = threading.Thread(target=send_frame, args=(here, message, tensors))
        sending.start()
        found = receive_frame(there)
        sending.join()
    assert found.message == message and list(found.tensors) == list(tensors)
    for name, sent in tensors.items():
        assert (found.tensors[name].dtype, found.tensors[name].shape) == (sent.dtype, sent.shape)
        np.testing.assert_array_equal(found.tensors[name], sent)
    for cut_off in (b"", b"\1\0", b"\5\0\0\0" + bytes(8) + b"{}"):
        here, there = socket.socketpair()
        with there:
            with here:
                here.sendall(cut_off)
            assert receive_frame(there) is None
