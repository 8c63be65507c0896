"""What a store keeps of whole histories gives the scores of whole histories."""

from __future__ import annotations

import json
import random
from functools import partial

import numpy as np
import pytest

from merlin_sim.serving import encoder as encoders
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import Interaction, StoreError, as_text
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.settings import LogSettings, ModelSettings
from merlin_sim.serving.triton.export import export_model
from merlin_sim.serving.workers.events_model import EventsModel
from merlin_sim.serving.workers.metrics import CountedReads
from merlin_sim.serving.workers.protocol import EVENT, SCORES
from merlin_sim.serving.workers.worker import TritonRequest

pytestmark = pytest.mark.slow
RECENT, LENGTH = 3, 20


@pytest.fixture(scope="module")
def exported(make_model, dataset, tmp_path_factory):
    """A model that reads the 3 newest positions and a summary of up to 20, and how it is served.

    Servable and scorer, by the form of its histories.
    """
    model, found = make_model(history_prototypes=4, recent_length=RECENT), {}
    for form in ("ragged", "padded"):
        path = tmp_path_factory.mktemp("summing") / form
        servable = Servable.open(export_model(model, dataset, path, pad=form == "padded"))
        found[form] = servable, Scorer(servable)
    return model, found


@pytest.fixture(scope="module")
def summing(exported):
    return exported[1]["ragged"][0]


def scores_of(scorer, encoder, events):
    encoded = [encoder.encode(fields) for fields in map(encoder.parse, events)]
    return np.concatenate(scorer.score_events(encoded))


@pytest.fixture(scope="module")
def score(exported):
    return partial(scores_of, exported[1]["ragged"][1])


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "KEPT_FROM", 2)
    made = open_store(str(tmp_path / "store"), create=True)
    yield made
    made.close()


def interactions(user, items, first=0):
    keys = [Interaction(as_text(user), as_text(item), first + n) for n, item in enumerate(items)]
    random.Random(1).shuffle(keys)  # they come in another order than that of their times
    return keys


def without_history(events):
    return [{n: value for n, value in event.items() if n != "history"} for event in events]


def own_users(events, most=6):
    """Events of different users with names of their own, and histories that samples hold whole."""
    return [
        {**event, "user_id": f"U{n}", "history": event["history"][-LENGTH:]}
        for n, event in enumerate(events[:most])
    ]


def test_the_servable_scores_whole_histories_as_the_model_does(exported, dataset, events):
    model, found = exported
    expected = model.predict(dataset, batch_size=32)[:, 0]
    for servable, scorer in found.values():
        scores = scores_of(scorer, EventEncoder(servable), events)
        np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize(("form", "candidates"), [("ragged", 1), ("padded", 9)])
def test_a_stored_summary_gives_the_scores_of_the_whole_history(
    exported, store, events, form, candidates
):
    """Appended bit by bit, read in between, with an interaction that comes late."""
    servable, scorer = exported[1][form]
    events = [{**e, "candidates": e["candidates"][:1] * candidates} for e in own_users(events)]
    plain = EventEncoder(servable)
    stored = EventEncoder(servable, histories=CountedReads(store, "events"))
    assert (plain.newest, stored.newest) == (2 * LENGTH, 2 * RECENT)
    for before, done in ((0, 5), (5, 6), (6, 9), (9, LENGTH)):
        for event in events:
            items = event["history"][:done]
            new = items[before:]
            store.append(interactions(event["user_id"], new, len(items) - len(new)))
        so_far = [{**event, "history": event["history"][:done]} for event in events]
        for _ in range(2):  # what was kept by the first is read by the second
            ours = scores_of(scorer, stored, without_history(so_far))
            whole = scores_of(scorer, plain, so_far)
            np.testing.assert_allclose(ours, whole, rtol=1e-5, atol=1e-6)
    (kept,) = store.read_summed([as_text("U0")], 2 * RECENT, servable.summary.model)
    assert kept.since == [] and len(kept.summary) == 4 * servable.summary.dim


def test_a_summary_has_what_the_store_no_longer_keeps(summing, score, tmp_path, events):
    event = own_users(events, 1)[0]
    history = (event["history"] * LENGTH)[:LENGTH]
    store = open_store(str(tmp_path / "few"), keep=RECENT, create=True)
    stored, (asked,) = EventEncoder(summing, histories=store), without_history([event])
    for number, item in enumerate(history):
        store.append([Interaction(as_text("U0"), as_text(item), number)])
        if number in (RECENT - 1, 8):
            score(stored, [asked])
    assert len(store.read(as_text("U0"), 99).items) == RECENT
    whole = {**event, "history": history}
    expected = score(EventEncoder(summing), [whole])
    np.testing.assert_allclose(score(stored, [asked]), expected, rtol=1e-5, atol=1e-6)
    last = {**event, "history": history[-RECENT:]}
    assert np.abs(score(EventEncoder(summing), [last]) - expected).max() > 1e-4


def test_the_summary_of_another_model_is_made_anew(summing, score, store, events):
    events = own_users(events)
    for event in events:
        store.append(interactions(event["user_id"], event["history"]))
    expected = score(EventEncoder(summing), events)
    stored = EventEncoder(summing, histories=store)
    own = summing.summary.model
    for _ in range(2):
        for number in range(len(events)):
            (found,) = store.read_summed([as_text(f"U{number}")], 2 * RECENT, "another")
            assert found.summary is None
            if found.mark is not None:
                nonsense = np.full(summing.summary.dim, 9, np.float32).tobytes()
                store.keep_summary(as_text(f"U{number}"), "another", nonsense, found.mark)
        ours = score(stored, without_history(events))
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
        (kept,) = store.read_summed([as_text("U0")], 2 * RECENT, own)
        assert kept.summary is not None


def test_events_with_without_and_of_an_empty_history_stand_in_one_batch(
    summing, score, store, events
):
    """One with a history reads no store, and none may bring a summary."""
    events = own_users(events)
    for event in events[:-1]:
        store.append(interactions(event["user_id"], event["history"]))
    store.append(interactions("U1", ["B"] * 9))
    events[-1]["history"] = []
    some = [event if n % 2 else without_history([event])[0] for n, event in enumerate(events)]
    some[-1] = without_history(events[-1:])[0]
    some[1] = {**events[1], "history_summary": [9.0] * summing.summary.dim}
    expected = score(EventEncoder(summing), events)
    ours = score(EventEncoder(summing, histories=store), some)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_the_server_answers_by_what_is_kept_though_it_cannot_be_kept(
    summing, score, store, events, tmp_path, monkeypatch, capsys
):
    def fail(*arguments):
        raise StoreError("the disk is full")

    events = own_users(events)
    for event in events:
        store.append(interactions(event["user_id"], event["history"]))
    log = LogSettings(tmp_path / "log", log_share=1.0)
    log.make_directory()
    texts = [[json.dumps(event).encode()] for event in without_history(events)]
    request = TritonRequest({EVENT: np.array(texts, object)}, frozenset({SCORES}))
    model, found = EventsModel(ModelSettings(summing.path, histories=str(store.path), log=log)), []
    with monkeypatch.context() as during:
        during.setattr(type(store), "keep_summary", fail)
        model.take([request], lambda index, answer: found.append(answer))
    assert "merlin-sim: the disk is full" in capsys.readouterr().err
    for _ in range(2):
        model.take([request], lambda index, answer: found.append(answer))
    model.close()
    expected = score(EventEncoder(summing), events)
    assert len(found) == 3
    for answer in found:
        np.testing.assert_allclose(answer[SCORES].ravel(), expected, rtol=1e-5, atol=1e-6)
