"""Interactions that are sent to a server are kept before they are acknowledged."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hollow_servable import write_hollow_servable
from prometheus_client import CollectorRegistry

from merlin_sim.serving.appends import MOST, NOT_KEPT, Appends, KeyKind
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import StoreError
from merlin_sim.serving.lookups import LogLookup, VocabularyLookup
from merlin_sim.serving.servable import Servable
from merlin_sim.workflows.fitted_numbers import NOTHING_LEARNED

ANY = KeyKind(True, LogLookup(VocabularyLookup("any", {}, True), None, NOTHING_LEARNED))
"""Numbers and texts."""
KINDS = ANY, {"item_id": ANY, "cat_id": ANY}, ("item_id",)


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "store"), create=True)


def ask(appends, *bodies):
    """Send them at the same moment."""

    async def gather():
        return await asyncio.gather(*(appends.answer(body) for body in bodies))

    return asyncio.run(gather())


def body(*interactions):
    return json.dumps(interactions[0] if len(interactions) == 1 else interactions).encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "expected one JSON object"),
        (b"3", "expected an object, received 3"),
        (b'[{"user": 1, "item": 2}, {"user": 1}]', "interaction 2: expected the key 'item'"),
        (b'{"user": 1, "item": {"cat_id": 2}}', "item: expected 'item_id'"),
        (b'{"user": 1, "item": {"item_id": 2, "colour": 3}}', "nothing besides item_id, cat_id"),
        (
            json.dumps({"user": 2**70, "item": 1}).encode(),
            "user: expected a whole number of 64 bits",
        ),
        (b'{"user": "\\ud800", "item": 1}', "user: expected text, received a lone surrogate"),
        (json.dumps([0] * (MOST + 1)).encode(), "at most 10,000 interactions, received 10,001"),
    ],
)
def test_of_a_bad_request_nothing_is_kept(store, text, says):
    ((status, answer),) = ask(Appends(store, *KINDS, CollectorRegistry()), text)
    assert status == 400 and says in answer["error"]
    assert store.users() == 0


class HeldStore:
    """Writes when it is allowed to; refuses what it is set to."""

    def __init__(self):
        self.go_on = threading.Event()
        self.calls = []

    def append(self, interactions):
        self.go_on.wait(60)
        self.calls.append([json.loads(one.item) for one in interactions])
        if 13 in self.calls[-1]:
            raise StoreError("the disk is full.")


def test_what_waits_is_written_together_and_each_has_its_own_answer():
    """One caller has gone meanwhile."""
    store = HeldStore()
    appends = Appends(store, *KINDS, CollectorRegistry())

    async def go():
        waiting = [
            asyncio.create_task(appends.answer(body({"user": 1, "item": item})))
            for item in range(5)
        ]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in waiting)
        waiting[2].cancel()
        store.go_on.set()
        found = asyncio.gather(*waiting, return_exceptions=True)
        answers = await asyncio.wait_for(found, 60)
        return [*answers, await appends.answer(body({"user": 1, "item": 13}))]

    answers = asyncio.run(go())
    assert isinstance(answers.pop(2), asyncio.CancelledError)
    assert answers == [(200, {"kept": 1})] * 4 + [(503, {"error": NOT_KEPT})]
    assert [item for call in store.calls for item in call] == [0, 1, 2, 3, 4, 13]
    assert len(store.calls) < 6


def test_callers_learn_that_no_thread_could_be_started(store, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", fail)
    appends = Appends(store, *KINDS, CollectorRegistry())
    asked = asyncio.wait_for(appends.answer(body({"user": 1, "item": 2})), 20)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        asyncio.run(asked)


def test_what_was_kept_is_there_and_counted(store):
    registry = CollectorRegistry()
    appends = Appends(store, *KINDS, registry)
    one = body({"user": "A", "item": "B1", "time": 2})
    two = body(
        {"user": "A", "item": {"item_id": "B0", "cat_id": "C"}, "time": 1}, {"user": 7, "item": 8}
    )
    found = ask(appends, one, two, b"nonsense")
    assert found[:2] == [(200, {"kept": 1}), (200, {"kept": 2})] and found[2][0] == 400
    assert store.read('"A"', 9).items == [{"item_id": "B0", "cat_id": "C"}, "B1"]
    assert store.read("7", 9).items == [8]
    store.append = lambda interactions: (_ for _ in ()).throw(StoreError("full"))
    ask(appends, one)

    def counted(name, labels=None):
        return registry.get_sample_value(f"merlin_sim_histories_append{name}", labels)

    names = ("s_total", "_requests_total", "_refused_total", "_failures_total", "_seconds_count")
    assert [counted(name) for name in names] == [3, 2, 1, 1, 1]
    assert counted("_seconds_sum") > 0 and counted("_seconds_bucket", {"le": "+Inf"}) == 1


@pytest.mark.parametrize(
    ("one", "says"),
    [
        ({"user": 7, "item": "B1"}, "user: expected a string, as the model's keys are, received 7"),
        ({"user": "A", "item": 8}, "item: expected a string, as the model's keys are"),
        ({"user": "A", "item": {"item_id": 8}}, "item.item_id: expected a string"),
        ({"user": "A", "item": {"item_id": "B1", "cat_id": 7}}, "item.cat_id: expected a string"),
    ],
)
def test_what_no_event_of_the_model_could_read_is_refused(servable, store, one, says):
    """All events of that user would be refused for it."""
    ((status, answer),) = ask(Appends.of(servable, store, CollectorRegistry()), body(one))
    assert status == 400 and says in answer["error"]
    assert store.users() == 0


def test_an_item_whose_features_are_not_known_brings_them(store, tmp_path):
    servable = Servable.open(write_hollow_servable(tmp_path / "servable", "one"))
    appends = Appends.of(servable, store, CollectorRegistry())
    for item, received in ((5, "5"), ({"thing": 5}, '{"thing": 5}')):
        ((status, answer),) = ask(appends, body({"user": 1, "item": item}))
        expected = "item: expected 'thing', 'kind' and nothing besides thing, kind, received "
        assert (status, answer["error"]) == (400, expected + received)
    whole = {"thing": 5, "kind": 2}
    assert ask(appends, body({"user": 1, "item": whole})) == [(200, {"kept": 1})]
    encoder = EventEncoder(servable, histories=store)
    encoded = encoder.encode(encoder.parse({"who": 1, "candidates": [whole]}))
    assert [ids.tolist() for ids in encoded.histories.values()] == [[5], [2]]
