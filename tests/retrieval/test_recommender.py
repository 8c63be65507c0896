"""The four stages together, beside what each alone would say."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_process import answer, run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.retrieval.candidates.histories import DatasetHistories, History
from merlin_sim.retrieval.candidates.index_directory import open_index
from merlin_sim.retrieval.recommender import NEAREST, POPULAR, Recommender
from merlin_sim.retrieval.rules.predicate import Predicate, UserFact
from merlin_sim.retrieval.rules.rules_file import Rules
from merlin_sim.serving.events.event_encoder import EventEncoder
from merlin_sim.serving.scoring.scorer import Scorer


@pytest.fixture(scope="module")
def index(towers, index_path):
    return open_index(index_path, towers)


@pytest.fixture(scope="module")
def kept(dataset):
    return DatasetHistories(dataset.path)


@pytest.fixture(scope="module")
def users(dataset):
    return pq.read_table(dataset.path / "categories/user_id.parquet")["key"].to_pylist()


def test_a_history_is_what_the_log_says_of_a_user(dataset, kept, users):
    """Test has each user's newest sample; of its history and target the newest 20 are kept."""
    found = kept.of(users)
    assert set(found) == set(users)
    items = pq.read_table(dataset.path / "categories/item_id.parquet").sort_by("id")["key"]
    keys = [None, *items.to_pylist()]
    table = pa.concat_tables([pq.read_table(f) for f in dataset.stored_files("test")]).to_pylist()
    clicked = [row for row in table if row["label"] == 1]
    assert len(clicked) == len(users)
    for row in clicked:
        history = found[users[row["user_id"] - 1]]
        expected = [keys[i] for i in row["item_id_pos"]] + [keys[row["item_id_trgt"]]]
        assert history.items == expected[-len(history.items) :] and len(history.items) >= 19
        assert history.user == {"user_id": users[row["user_id"] - 1]}
    assert kept.of(["nobody"]) == {}


def test_an_answer_is_that_of_its_stages(towers, index, ranker, kept, users):
    """Every item, without those seen, as the ranker orders them."""
    history = kept.of(users[:1])[users[0]]
    recommender = Recommender(towers, index, ranker, candidates=10_000)
    found = recommender.recommend(history, 12)
    unseen = [key for key in towers.catalogue.keys[1:] if key not in history.items]
    encoder = EventEncoder(ranker)
    event = {"user_id": users[0], "history": history.items, "candidates": unseen}
    (scores,) = Scorer(ranker).score_events([encoder.encode(encoder.parse(event))])
    order = np.argsort(-scores, kind="stable")[:12]
    np.testing.assert_allclose(found.scores, scores[order], rtol=1e-5)
    assert set(found.items) == {unseen[i] for i in order}
    assert found.source == NEAREST
    assert found.kept == len(unseen) < found.retrieved == len(towers.catalogue.keys) - 1


def test_without_a_ranker_the_nearest_are_the_answer(towers, index, kept, users):
    history = kept.of(users[:1])[users[0]]
    keep = Recommender(towers, index, rules=Rules(drops_seen=False)).recommend(history, 5)
    event = {"user_id": users[0], "history": history.items, "candidates": []}
    encoded = towers.encoder.encode(towers.encoder.parse(event))
    ids, cosines, _ = index.search(towers.users([encoded]), 5)
    assert keep.items == [towers.catalogue.keys[i] for i in ids[0]]
    np.testing.assert_allclose(keep.scores, cosines[0], rtol=1e-6)


def test_where_filters_leave_little_more_is_looked_at(towers, index, kept, users, tmp_path):
    allowed = towers.catalogue.keys[[3, 50, 200]]
    table = pa.table({"item_id": list(allowed), "market": ["DE"] * 3})
    pq.write_table(table, tmp_path / "facts.parquet")
    rule = Predicate("market", "is", UserFact("market"))
    rules = Rules(tmp_path / "facts.parquet", drops_seen=False, filters=(rule,))
    recommender = Recommender(towers, index, rules=rules, candidates=4)
    history = kept.of(users[:1])[users[0]]
    found = recommender.recommend(history, 3, {"market": "DE"})
    assert sorted(found.items) == sorted(allowed)
    with pytest.raises(MerlinSimError, match="needs the fact 'market'"):
        recommender.recommend(history, 3)


@pytest.mark.parametrize("history", [None, History({"user_id": "x"}, [])])
def test_of_whom_nothing_is_known_gets_popular_items(towers, index, history):
    found = Recommender(towers, index, rules=Rules(caps={"cat_id": 1})).recommend(history, 5)
    counts = pq.read_table(towers.servable.vocabulary("item_id")).sort_by("id").to_pylist()
    popular = sorted(counts, key=lambda row: -row["count"])
    expected, categories = [], set()
    for row in popular:
        if row["cat_id"] not in categories:
            expected.append(row["key"])
            categories.add(row["cat_id"])
    assert found.items == expected[:5] and found.scores == [None] * 5
    assert found.source == POPULAR


def test_a_history_of_unknown_items_is_a_vector_too(towers, index, ranker):
    found = Recommender(towers, index, ranker).recommend(History({"user_id": "x"}, ["?"]), 3)
    assert found.source == NEAREST and len(found.items) == 3


def test_a_changed_history_is_refused(dataset, tmp_path):
    copy = shutil.copytree(dataset.path, tmp_path / "copy")
    (path,) = (copy / "history").iterdir()
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(MerlinSimError, match="not the file that"):
        DatasetHistories(copy).of(["A"])


def test_the_command_gives_tables_and_json(towers, index_path, ranker, dataset, users, tmp_path):
    (tmp_path / "rules.yaml").write_text("caps: {cat_id: 2}\ndiversity: 0.3\n")
    options = ["--towers", towers.servable.path, "--index", index_path, "--ranker", ranker.path]
    options += ["--dataset_dir", dataset.path, "--rules", tmp_path / "rules.yaml"]
    who = ["--user", users[0], "--user", "nobody", "--top", 4]
    lines = [json.loads(line) for line in run(
        "recommend", *options, *who, "--format", "json"
    ).splitlines()]  # fmt: skip
    assert [line["user"] for line in lines] == [users[0], "nobody"]
    assert [len(line["items"]) for line in lines] == [4, 4]
    assert lines[1]["source"] == POPULAR and lines[1]["items"][0]["score"] is None
    shown = run("recommend", *options, *who)
    assert shown.count(POPULAR) == 1
    for entry in lines[0]["items"]:
        assert f"{entry['item']}  {entry['score']:.6f}" in shown
    refused = answer("recommend", *options, *who, "--fact", "age")
    assert refused.returncode == 2 and "`fact` should be NAME=VALUE" in refused.stderr
