"""Measures of answers, beside answers that were worked out one by one."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_process import answer, run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.progress import Silence
from merlin_sim.serving.retrieval.index import open_index
from merlin_sim.serving.retrieval.quality import (
    INDEX,
    POPULAR,
    RANKED_POPULAR,
    WHOLE,
    ClickedRows,
    CoOccurrence,
    HeldOutClicks,
    Quality,
    coverage,
    ndcg,
    recall,
)
from merlin_sim.serving.retrieval.recommender import Recommender
from merlin_sim.serving.retrieval.users import UserHistory


@pytest.fixture(scope="module")
def recommender(towers, index_path, ranker):
    return Recommender(towers, open_index(index_path, towers), ranker, retrieved=60)


def ranks_of(targets, answers):
    """The rank of each user's item in the answer, by raw keys."""
    pairs = zip(targets, answers, strict=True)
    return np.array([items.index(target) if target in items else -1 for target, items in pairs])


def test_measures_by_hand():
    ranks = np.array([0, 1, 6, -1, 25])
    assert recall(ranks, 7) == 3 / 5 and recall(ranks, 1) == 1 / 5
    assert ndcg(ranks, 20) == pytest.approx((1 + 1 / np.log2(3) + 1 / 3) / 5)
    assert coverage([np.array([3, 1]), np.array([], int), np.array([3, 2])], 1, 4) == 1 / 4


def test_co_occurrence_counts_what_came_after():
    """3 came after 1 twice and after 2 once; 4 after 2; of the root of how often each was there."""
    histories = np.array([[0, 0, 1], [0, 2, 1], [0, 0, 2], [0, 0, 0]])
    clicks = HeldOutClicks(histories, np.array([3, 3, 4, 1]), {})
    table = CoOccurrence([clicks.take(np.arange(2)), clicks.take(np.array([2, 3]))], 5)
    assert table.nearest(np.array([1]), 5).tolist() == [3]
    assert table.nearest(np.array([2]), 5).tolist() == [4, 3]  # 1 / sqrt 1 over 1 / sqrt 3
    assert table.nearest(np.array([1, 2]), 1).tolist() == [3]
    assert table.nearest(np.array([4]), 5).tolist() == []


def test_clicked_rows_are_those_of_the_files(dataset):
    rows = ClickedRows(dataset)
    drawn = rows.sample("test", 10**6, 1)
    table = pa.concat_tables([pq.read_table(f) for f in dataset.stored_files("test")]).to_pylist()
    clicked = [row for row in table if row["label"] == 1]
    assert len(drawn) == len(clicked) and len(rows.sample("test", 5, 1)) == 5
    histories, targets = rows.raw(drawn)
    keys = rows.item_keys
    expected = {
        (row["user_id"], tuple(keys[i] for i in row["item_id_pos"]), keys[row["item_id_trgt"]])
        for row in clicked
    }
    users = pq.read_table(dataset.path / "categories/user_id.parquet")["key"].to_pylist()
    found = {
        (users.index(h.user["user_id"]) + 1, tuple(h.items), target)
        for h, target in zip(histories, targets, strict=True)
    }
    assert found == expected


@pytest.mark.slow
def test_a_report_is_what_answers_give_to_histories_that_end_before_what_is_held_out(
    recommender, dataset, monkeypatch
):
    asked, ask = [], Recommender.recommend

    def recommend(self, history, *rest):
        asked.append(history)
        return ask(self, history, *rest)

    with monkeypatch.context() as during:
        during.setattr(Recommender, "recommend", recommend)
        report = Quality(recommender, dataset, Silence()).report("test", 8, 3)
    by_name = {entry.name: entry for entry in report.measured}
    rows = ClickedRows(dataset)
    histories, targets = rows.raw(rows.sample("test", 8, 3))
    # Whoever saw what is held out could answer with it.
    assert asked == [UserHistory(dict(h.user), list(h.items)) for h in histories]
    answers = [recommender.recommend(history, 20).items for history in histories]
    ranks = ranks_of(targets, answers)
    assert by_name[WHOLE].ndcg == pytest.approx(ndcg(ranks, 20))
    assert by_name[WHOLE].recalls == {20: recall(ranks, 20)}
    seen = {item for answer in answers for item in answer}
    assert by_name[WHOLE].coverage == pytest.approx(len(seen) / report.items)

    nearest = Recommender(recommender.towers, recommender.index, retrieved=500)
    ranks = ranks_of(targets, [nearest.recommend(h, 500).items for h in histories])
    assert by_name[INDEX].recalls == {k: recall(ranks, k) for k in (20, 100, 500)}

    catalogue = recommender.towers.catalogue
    popular = [catalogue.keys[i] for i in catalogue.popular]
    unseen = [[key for key in popular if key not in history.items] for history in histories]
    assert by_name[POPULAR].ndcg == pytest.approx(ndcg(ranks_of(targets, unseen), 20))
    assert report.users == 8 and report.unknown == 0 and report.index_recall == 1.0
    assert RANKED_POPULAR in by_name

    lookup = recommender.towers.encoder.items[0]
    monkeypatch.setattr(type(lookup), "look_up", lambda self, key, where: 0)
    with pytest.raises(MerlinSimError, match="none of the 8 clicks is on an item that"):
        Quality(recommender, dataset, Silence()).report("test", 8, 3)


@pytest.mark.slow
def test_the_command_reports_it(towers, index_path, dataset, tmp_path):
    options = ["--towers", towers.servable.path, "--index", index_path, "--clicks", 10]
    options += ["--dataset_dir", dataset.path]
    report = json.loads(run("recommend-report", *options, "--json").splitlines()[-1])
    assert [entry["name"] for entry in report["measured"]] == [
        "popular items", "co-occurrence", "towers, index",
    ]  # fmt: skip
    shown = run("recommend-report", *options)
    for entry in report["measured"]:
        assert f"{entry['ndcg']:.4f}" in shown
    (tmp_path / "rules.yaml").write_text("seen: keep\n")
    kept = run("recommend-report", *options, "--rules", tmp_path / "rules.yaml")
    assert kept != shown
    refused = answer("recommend-report", *options, "--seed", -1)
    assert refused.returncode == 2 and "--seed" in refused.stderr
