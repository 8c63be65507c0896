"""What a store keeps of whole histories gives the scores of whole histories."""

from __future__ import annotations

import json
import random

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
from merlin_sim.serving.workers.worker import Request

pytestmark = pytest.mark.slow
RECENT, LENGTH = 3, 20


@pytest.fixture(scope="module")
def summing(request, make_model, dataset, tmp_path_factory):
    """A servable that reads the 3 newest positions and a summary of up to 20."""
    model = make_model("stca", history_prototypes=4, recent_length=RECENT)
    path = tmp_path_factory.mktemp("summing") / "servable"
    return Servable.open(
        export_model(model, dataset, path, pad=getattr(request, "param", "ragged") == "padded")
    )


@pytest.fixture(scope="module")
def other(make_model, dataset, tmp_path_factory):
    """The same of another model."""
    model = make_model("din", history_prototypes=4, recent_length=RECENT)
    return Servable.open(
        export_model(model, dataset, tmp_path_factory.mktemp("other") / "servable")
    )


@pytest.fixture(scope="module")
def score(summing):
    scorer = Scorer(summing)

    def score_with(encoder, events):
        encoded = [encoder.encode(fields) for fields in map(encoder.parse, events)]
        return np.concatenate(scorer.score_events(encoded))

    return score_with


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


@pytest.mark.parametrize("summing", ["ragged", "padded"], indirect=True)
def test_the_servable_scores_whole_histories_as_the_model_does(
    summing, score, make_model, dataset, events
):
    model = make_model("stca", history_prototypes=4, recent_length=RECENT)
    expected = model.predict(dataset, batch_size=32)[:, 0]
    np.testing.assert_allclose(score(EventEncoder(summing), events), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("summing", "candidates"), [("ragged", 9), ("padded", 1), ("padded", 9)], indirect=["summing"]
)
def test_a_stored_summary_gives_the_scores_of_the_whole_history(
    summing, score, store, events, candidates
):
    """Appended bit by bit, read in between, with an interaction that comes late."""
    events = [{**e, "candidates": e["candidates"][:1] * candidates} for e in own_users(events)]
    plain = EventEncoder(summing)
    stored = EventEncoder(summing, histories=CountedReads(store, "events"))
    assert (plain.newest, stored.newest) == (2 * LENGTH, 2 * RECENT)
    for done in (5, 6, 9, LENGTH):
        for event in events:
            items = event["history"][:done]
            new = items if done == 5 else items[{6: 5, 9: 6, LENGTH: 9}[done] :]
            store.append(interactions(event["user_id"], new, len(items) - len(new)))
        so_far = [{**event, "history": event["history"][:done]} for event in events]
        for _ in range(2):  # what was kept by the first is read by the second
            ours = score(stored, without_history(so_far))
            np.testing.assert_allclose(ours, score(plain, so_far), rtol=1e-5, atol=1e-6)
    model = summing.summary.model
    (kept,) = store.read_summed([as_text("U0")], 2 * RECENT, model)
    assert kept.since == [] and len(kept.summary) == 4 * summing.summary.dim


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


def test_the_summary_of_another_model_is_made_anew(summing, other, score, store, events):
    assert summing.summary.model != other.summary.model
    events = own_users(events)
    for event in events:
        store.append(interactions(event["user_id"], event["history"]))
    expected = score(EventEncoder(summing), events)
    for_other = EventEncoder(other, histories=store)
    for _ in range(2):
        Scorer(other).score_events(
            [for_other.encode(for_other.parse(event)) for event in without_history(events)]
        )
        ours = score(EventEncoder(summing, histories=store), without_history(events))
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_an_event_with_a_history_reads_no_store_and_may_not_bring_a_summary(
    summing, score, store, events
):
    event = own_users(events, 1)[0]
    store.append(interactions("U0", ["B"] * 9))
    sent = {**event, "history_summary": [9.0] * summing.summary.dim}
    plain, stored = EventEncoder(summing), EventEncoder(summing, histories=store)
    np.testing.assert_array_equal(score(stored, [sent]), score(plain, [event]))


def test_events_of_both_kinds_stand_in_one_batch(summing, score, store, events):
    events = own_users(events)
    for event in events:
        store.append(interactions(event["user_id"], event["history"]))
    some = [event if n % 2 else without_history([event])[0] for n, event in enumerate(events)]
    expected = score(EventEncoder(summing), events)
    ours = score(EventEncoder(summing, histories=store), some)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_users_without_interactions_have_an_empty_history(summing, score, store, events):
    event = {**own_users(events, 1)[0], "history": []}
    ours = score(EventEncoder(summing, histories=store), without_history([event]))
    np.testing.assert_array_equal(ours, score(EventEncoder(summing), [event]))


def test_scores_come_though_a_summary_cannot_be_kept(
    summing, score, store, events, monkeypatch, capsys
):
    def fail(*arguments):
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "keep_summary", fail)
    event = own_users(events, 1)[0]
    event["history"] = (event["history"] * LENGTH)[:LENGTH]
    store.append(interactions("U0", event["history"]))
    ours = score(EventEncoder(summing, histories=store), without_history([event]))
    np.testing.assert_allclose(ours, score(EventEncoder(summing), [event]), rtol=1e-5, atol=1e-6)
    assert "merlin-sim: the disk is full" in capsys.readouterr().err


def test_the_server_answers_by_what_is_kept(summing, score, store, events, tmp_path):
    events = own_users(events)
    for event in events:
        store.append(interactions(event["user_id"], event["history"]))
    log = LogSettings(tmp_path / "log", log_share=1.0)
    log.make_directory()
    texts = [[json.dumps(event).encode()] for event in without_history(events)]
    request = Request({EVENT: np.array(texts, object)}, frozenset({SCORES}))
    model, found = EventsModel(ModelSettings(summing.path, histories=str(store.path), log=log)), []
    for _ in range(2):
        model.take([request], lambda place, answer: found.append(answer))
    model.close()
    expected = score(EventEncoder(summing), events)
    for answer in found:
        np.testing.assert_allclose(answer[SCORES].ravel(), expected, rtol=1e-5, atol=1e-6)
