"""What a ranker says of items by their ids is what it says of their keys."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_process import answer, run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import parse_interaction
from merlin_sim.serving.retrieval import recommender as candidate_scores
from merlin_sim.serving.retrieval.index import ItemIndex, open_index
from merlin_sim.serving.retrieval.recommender import (
    FILTER,
    NEAREST,
    ORDER,
    POPULAR,
    RETRIEVE,
    SCORE,
    Question,
    Ranker,
    Recommender,
)
from merlin_sim.serving.retrieval.rules import Predicate, Rules, UserFact
from merlin_sim.serving.retrieval.towers import Towers
from merlin_sim.serving.retrieval.users import DatasetHistories, StoreHistories, UserHistory
from merlin_sim.serving.scorer import Scorer


@pytest.fixture(scope="module")
def index(towers, index_path):
    return open_index(index_path, towers)


@pytest.fixture(scope="module")
def users(dataset):
    return pq.read_table(dataset.path / "categories/user_id.parquet")["key"].to_pylist()


@pytest.fixture(scope="module")
def known(dataset, users):
    """What the dataset keeps of each user's history."""
    return DatasetHistories(dataset.path).of([*users, "nobody"])


@pytest.fixture(scope="module")
def score(ranker):
    """Score candidates as events that bring the history."""
    encoder, scorer = EventEncoder(ranker), Scorer(ranker)

    def score(user, history, candidates):
        event = {"user_id": user, "history": history, "candidates": candidates}
        return scorer.score_events([encoder.encode(encoder.parse(event))])[0]

    return score


@pytest.mark.slow
@pytest.mark.parametrize("is_looked_up", [False, True])
def test_items_of_another_day_are_scored_as_their_keys(
    towers, ranker, score, is_looked_up, monkeypatch
):
    """The catalogue has them in another order than the ranker, and one that it does not know."""
    monkeypatch.setattr(candidate_scores, "ITEMS_AT_ONCE", 64)
    keys = towers.catalogue.keys
    mixed = np.array([None, *keys[:0:-1], "new"], object)
    scores = Ranker(ranker, replace(towers.catalogue, keys=mixed, counts=None))
    if is_looked_up:
        scores.look_up_all()
    history = UserHistory({"user_id": "x"}, [keys[3], "?", keys[8]])
    for ids in ([5, len(mixed) - 1, 2], [2, 2, 9, 5]):
        found = scores.score(history, np.array(ids), {})
        np.testing.assert_array_equal(found, score("x", history.items, [mixed[i] for i in ids]))
        assert np.ptp(found) > 1e-4


def test_a_history_is_what_the_log_says_of_a_user(dataset, known, users, tmp_path):
    """Test has each user's newest sample; of its history and target the newest 20 are kept."""
    assert set(known) == set(users)
    items = pq.read_table(dataset.path / "categories/item_id.parquet").sort_by("id")["key"]
    keys = [None, *items.to_pylist()]
    table = pa.concat_tables([pq.read_table(f) for f in dataset.stored_files("test")]).to_pylist()
    clicked = [row for row in table if row["label"] == 1]
    assert len(clicked) == len(users)
    for row in clicked:
        history = known[users[row["user_id"] - 1]]
        expected = [keys[i] for i in row["item_id_pos"]] + [keys[row["item_id_trgt"]]]
        assert history.items == expected[-len(history.items) :] and len(history.items) >= 19
        assert history.user == {"user_id": users[row["user_id"] - 1]}
    copy = shutil.copytree(dataset.path, tmp_path / "copy")
    for path in (copy / "history").iterdir():
        path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(MerlinSimError, match="not the file that"):
        DatasetHistories(copy).of(["A"])


@pytest.mark.slow
def test_an_answer_is_that_of_its_stages(towers, index, ranker, known, users, score):
    """Every item, without those seen, as the ranker orders them; the nearest without a ranker."""
    history, keys = known[users[0]], towers.catalogue.keys
    found = Recommender(towers, index, ranker, retrieved=10_000).recommend(history, 12)
    unseen = [key for key in keys[1:] if key not in history.items]
    scores = score(users[0], history.items, unseen)
    order = np.argsort(-scores, kind="stable")[:12]
    np.testing.assert_allclose(found.scores, scores[order], rtol=1e-5)
    assert set(found.items) == {unseen[i] for i in order}
    assert found.source == NEAREST
    assert found.kept == len(unseen) < found.retrieved == len(keys) - 1
    found = Recommender(towers, index, rules=Rules(drops_seen=False)).recommend(history, 5)
    event = {"user_id": users[0], "history": history.items, "candidates": []}
    encoded = towers.encoder.encode(towers.encoder.parse(event))
    ids, cosines = index.search(towers.users([encoded]), 5)
    assert found.items == [keys[i] for i in ids[0]]
    np.testing.assert_allclose(found.scores, cosines[0], rtol=1e-6)
    unknown = Recommender(towers, index, ranker).recommend(UserHistory({"user_id": "x"}, ["?"]), 3)
    assert unknown.source == NEAREST and len(unknown.items) == 3  # is a vector too


def test_where_filters_leave_little_more_is_looked_at(towers, index, known, users, tmp_path):
    allowed = towers.catalogue.keys[[3, 50, 200]]
    table = pa.table({"item_id": list(allowed), "market": ["DE"] * 3})
    pq.write_table(table, tmp_path / "facts.parquet")
    rule = Predicate("market", "is", UserFact("market"))
    rules = Rules(tmp_path / "facts.parquet", drops_seen=False, filters=(rule,))
    recommender = Recommender(towers, index, rules=rules, retrieved=4)
    found = recommender.recommend(known[users[0]], 3, {"market": "DE"})
    assert sorted(found.items) == sorted(allowed)


@pytest.mark.parametrize("history", [None, UserHistory({"user_id": "x"}, [])])
def test_of_whom_nothing_is_known_gets_popular_items(towers, index, history):
    found = Recommender(towers, index, rules=Rules(caps={"cat_id": 1})).recommend(history, 5)
    counts = pq.read_table(towers.servable.vocabulary("item_id")).sort_by("id").to_pylist()
    expected, categories = [], set()
    for row in sorted(counts, key=lambda row: -row["count"]):
        if row["cat_id"] not in categories:
            expected.append(row["key"])
            categories.add(row["cat_id"])
    assert found.items == expected[:5] and found.scores == [None] * 5
    assert found.source == POPULAR


@pytest.mark.slow
def test_questions_of_one_call_are_answered_as_alone(
    towers, index, ranker, known, users, tmp_path, monkeypatch
):
    """Whatever stands beside them: one of whom nothing is known, one that cannot be answered."""
    keys = list(towers.catalogue.keys[1:])
    table = pa.table({"item_id": keys, "age": list(range(len(keys)))})
    pq.write_table(table, tmp_path / "f.parquet")
    rule = Predicate("age", "at_least", UserFact("age"))
    rules = Rules(tmp_path / "f.parquet", filters=(rule,), caps={"cat_id": 2}, diversity=0.2)
    took = Counter()
    recommender = Recommender(
        towers, index, ranker, rules, 20, lambda stage, seconds: took.update([stage])
    )
    questions = [
        Question(known[user], top, {"age": 3 * top}) for top, user in enumerate(users[:30], start=1)
    ]
    questions[4:4] = [Question(None, 3, {"age": 7}), Question(known[users[0]], 3)]

    def broken(self, *arguments):
        raise ValueError("of no use")

    with monkeypatch.context() as during:  # all that retrieve together fail together
        during.setattr(ItemIndex, "search", broken)
        failed = dict(recommender.recommend_all(questions[:4]))
    assert [str(failed[number]) for number in range(4)] == ["of no use"] * 4
    took.clear()
    found = [one for _, one in sorted(recommender.recommend_all(questions), key=itemgetter(0))]
    assert [isinstance(one, Exception) for one in found].index(True) == 5
    assert "needs the fact 'age'" in str(found[5])
    alone = len(questions) - 2
    assert took == {RETRIEVE: alone + 1, FILTER: alone + 1, SCORE: alone, ORDER: alone + 1}
    for one, question in zip(found, questions, strict=True):
        if isinstance(one, Exception):
            continue
        expected = recommender.recommend(*question)
        assert (one.items, one.source, one.kept) == (expected.items, expected.source, expected.kept)
        if question.history is not None:
            np.testing.assert_allclose(one.scores, expected.scores, rtol=1e-5)


def test_a_history_that_cannot_be_looked_up_is_no_fault_of_the_others(towers, index):
    """Nor where the key of another type is older than all that the towers read."""
    keys = list(towers.catalogue.keys[1:])
    histories = [keys[:3], [7, *keys[:60]], keys[5:9]]
    questions = [Question(UserHistory({"user_id": "x"}, items), 3) for items in histories]
    found = dict(Recommender(towers, index).recommend_all(questions))
    assert "expected a string or null, received 7" in str(found[1])
    assert [found[number].source for number in (0, 2)] == [NEAREST] * 2


def test_whoever_asks_beside_changes_no_candidate(towers, index, known, users, monkeypatch):
    """Each is looked for with its own number: the more are wanted, the more are compared again.

    With that of the longest history for all, 52 of 165,703 answers under load were others.
    """
    asked, search = Counter(), ItemIndex.search

    def seen(self, queries, count, *widening):
        asked[count] += len(queries)
        return search(self, queries, count, *widening)

    monkeypatch.setattr(ItemIndex, "search", seen)
    questions = [
        Question(UserHistory(known[user].user, known[user].items[: 1 + number % 3]), 12)
        for number, user in enumerate(users[:16])
    ]
    dict(Recommender(towers, index, retrieved=12).recommend_all(questions))
    assert asked == {13: 6, 14: 5, 15: 5}


def test_both_models_are_called_before_the_first_question(towers, index, ranker, monkeypatch):
    recommender = Recommender(towers, index, ranker, retrieved=30)
    called = []
    for owner, name in ((Towers, "users"), (ItemIndex, "search"), (Scorer, "score_events")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *a, real=real, name=name: (called.append(name), real(*a))[1]
        )
    recommender.warm_up()
    assert called == ["users", "search", "score_events"]


def test_a_store_has_what_a_dataset_has(towers, index, ranker, dataset, known, users, tmp_path):
    """Of all users, by their keys; all that was appended since then was seen, too."""
    run("histories", "load", tmp_path / "store", "--dataset_dir", dataset.path)
    store = open_store(str(tmp_path / "store"))
    of_store = StoreHistories(store, towers.encoder)
    assert of_store.keys(users) == users
    assert of_store.of([*users, "nobody"]) == known
    assert of_store.is_known(users[0]) and not of_store.is_known("nobody")
    with pytest.raises(MerlinSimError, match="user: expected a string or null, received 7"):
        of_store.is_known(7)
    items = list(towers.catalogue.keys[1:])  # more than the 20 that a model reads
    store.append([parse_interaction({"user": "X", "item": {"item_id": i}}) for i in items[:-7]])
    found = Recommender(towers, index, ranker).recommend(of_store.of(["X"])["X"], 20)
    assert set(found.items) == set(items[-7:])
    lookup = SimpleNamespace(is_text=False)
    encoder = SimpleNamespace(users=[lookup], columns=SimpleNamespace(users=["user"]))
    of_numbers = StoreHistories(None, encoder)
    assert of_numbers.keys(["7", "-3"]) == [7, -3]
    with pytest.raises(MerlinSimError, match="should be a whole number, .* Received: 'x'"):
        of_numbers.keys(["7", "x"])


@pytest.mark.slow
def test_the_command_gives_tables_and_json(towers, index_path, ranker, dataset, users, tmp_path):
    (tmp_path / "rules.yaml").write_text("caps: {cat_id: 2}\ndiversity: 0.3\n")
    run("histories", "load", tmp_path / "store", "--dataset_dir", dataset.path)
    options = ["--towers", towers.servable.path, "--index", index_path, "--ranker", ranker.path]
    options += ["--rules", tmp_path / "rules.yaml"]
    options += ["--user", users[0], "--user", "nobody", "--top", 4]
    of_dataset = [*options, "--dataset_dir", dataset.path]
    of_store = [*options, "--histories", tmp_path / "store"]
    said = run("recommend", *of_dataset, "--json").splitlines()
    lines = [json.loads(line) for line in said]
    assert [line["user"] for line in lines] == [users[0], "nobody"]
    assert [len(line["items"]) for line in lines] == [4, 4]
    assert lines[1]["source"] == POPULAR and lines[1]["items"][0]["score"] is None
    reported = run("recommend", *of_store, "--json").splitlines()
    assert [json.loads(line) for line in reported] == lines
    shown = run("recommend", *of_dataset)
    assert shown.count(POPULAR) == 1
    for entry in lines[0]["items"]:
        assert f"{entry['item']}  {entry['score']:.6f}" in shown
    for wrong, said in (
        ([*of_store, "--dataset_dir", dataset.path], "either --dataset_dir or --histories"),
        ([*of_dataset, "--fact", "age"], "`fact` should be NAME=VALUE"),
    ):
        refused = answer("recommend", *wrong)
        assert refused.returncode == 2 and said in refused.stderr


@pytest.mark.slow
def test_a_model_that_cannot_be_warmed_up_is_reported(towers, index, monkeypatch, capsys):
    recommender = Recommender(towers, index)
    recommender.warm_up()
    assert capsys.readouterr().err == ""

    def refuse(event):
        raise MerlinSimError("age: expected a number")

    monkeypatch.setattr(towers.encoder, "encode", refuse)
    recommender.warm_up()
    said = "merlin-sim: the first request will prepare the models: age: expected a number\n"
    assert capsys.readouterr().err == said
