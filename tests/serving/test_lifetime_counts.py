"""Counts over a user's whole history: the same in rows, from users, and of raw events."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from feature_logs import COLUMNS, feature_log
from fed_samples import assert_same_samples
from in_process import answer, run

from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.retrieval.items import Catalogue
from merlin_sim.serving.retrieval.recommender import Ranker
from merlin_sim.serving.retrieval.users import UserHistory
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import restore_model

pytestmark = pytest.mark.slow
NAMES = ["what_lifetime_count_trgt", "brand_lifetime_count_trgt"]
WINDOW = 5
OPTIONS = (
    *COLUMNS, "--item_feature_columns", "brand", "--shortest_sequence_for_user", 5,
    "--max_sequence_length", WINDOW, "--scheduler", "single", "--validation", "none",
)  # fmt: skip


@pytest.fixture(scope="module")
def log():
    return feature_log(rows=1200)[["who", "what", "when", "brand"]]


@pytest.fixture(scope="module")
def home(log, tmp_path_factory):
    """The log as rows and as users, and a model of each."""
    home = tmp_path_factory.mktemp("lifetimes")
    log.to_parquet(home / "log.parquet")
    (home / "features.yaml").write_text("lifetime_counts: [what, brand]")
    features = ("--features", home / "features.yaml")
    for layout in ("samples", "users"):
        output = ("--output_path", home / layout, "--layout", layout)
        run("preprocess", "log", home / "log.parquet", *output, *OPTIONS, *features)
    sizes = ("--model_type", "din", "--embedding_dim", 4, "--epochs", 2, "--seed", 3)
    saved = ("--results_dir", home / "run", "--save_checkpoint_path", home / "run/checkpoints")
    run("train", "--dataset_dir", home / "users", "--global_batch_size", 64, *sizes, *saved)
    source = ("--load_checkpoint_path", home / "run/checkpoints", "--dataset_dir", home / "users")
    run("export", *source, "--output", home / "servable")
    return home


def rows_of(home, mapping):
    """A mapping's rows, with the keys of users and target items in place of ids."""
    rows = pq.read_table(home / "samples" / mapping).to_pandas()
    for domain, name in (("who", "who"), ("what", "what_trgt"), ("brand", "brand_trgt")):
        table = pd.read_parquet(home / "samples/categories" / f"{domain}.parquet").set_index("id")
        rows[name] = table["key"].loc[rows[name]].to_numpy()
    return rows


def test_a_sample_has_the_counts_of_all_before_it(home, log):
    rows, beyond = rows_of(home, "test"), 0
    assert len(rows) > 50
    for row in rows.to_dict("records"):
        before = log[log["who"] == row["who"]][:-1]
        counts = [(before[name] == row[f"{name}_trgt"]).sum() for name in ("what", "brand")]
        np.testing.assert_allclose([row[name] for name in NAMES], np.log1p(counts), rtol=1e-6)
        beyond += counts[1] > WINDOW
    assert beyond > 10


def test_of_each_user_every_position_counts_one_more(home, log):
    rows = rows_of(home, "train")
    taken = rows[rows["label"] == 1]
    for who, of_user in taken.groupby("who"):
        items = log[log["who"] == who]["what"].iloc[1:-1]
        numbers = pd.concat([log[log["who"] == who]["what"].iloc[:1], items])
        expected = numbers.groupby(numbers).cumcount().iloc[1:]
        ours = np.expm1(of_user[NAMES[0]]).round().astype(int)
        assert sorted(zip(of_user["what_trgt"], ours, strict=True)) == sorted(
            zip(items, expected, strict=True)
        )


def test_users_give_the_samples_of_the_rows(home):
    assert assert_same_samples(home / "users", home / "samples") > 1000


def test_raw_events_get_the_scores_of_their_rows(home, log, tmp_path):
    dataset = DatasetDirectory.open(home / "users")
    model = restore_model(CheckpointStore(home / "run/checkpoints").load(), dataset)
    rows = rows_of(home, "test")
    stored = DatasetDirectory.open(home / "samples")
    expected = model.predict(stored, batch_size=16)[:, 0]
    events = [
        {
            "who": row["who"],
            "history": log[log["who"] == row["who"]]["what"].tolist()[:-1],
            "candidates": [row["what_trgt"]],
        }
        for row in rows.to_dict("records")
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, events)))
    output = ("--output", tmp_path / "scores.parquet")
    run("score", home / "servable", "--input", tmp_path / "events.jsonl", *output)
    scores = [s[0] for s in pq.read_table(output[1])["scores"].to_pylist()]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    log.groupby("who").apply(lambda rows: rows[:-1]).to_parquet(tmp_path / "before.parquet")
    run("histories", "load", tmp_path / "store", tmp_path / "before.parquet", *COLUMNS)
    kept = [{n: value for n, value in event.items() if n != "history"} for event in events]
    (tmp_path / "kept.jsonl").write_text("\n".join(map(json.dumps, kept)))
    output = ("--output", tmp_path / "kept.parquet", "--histories", tmp_path / "store")
    run("score", home / "servable", "--input", tmp_path / "kept.jsonl", *output)
    of_store = [s[0] for s in pq.read_table(output[1])["scores"].to_pylist()]
    np.testing.assert_allclose(of_store, scores, atol=1e-6)
    cut = [{**event, "history": event["history"][-WINDOW:]} for event in events]
    (tmp_path / "cut.jsonl").write_text("\n".join(map(json.dumps, cut)))
    output = ("--output", tmp_path / "cut.parquet")
    run("score", home / "servable", "--input", tmp_path / "cut.jsonl", *output)
    cut_scores = [s[0] for s in pq.read_table(output[1])["scores"].to_pylist()]
    assert np.abs(np.subtract(cut_scores, scores)).max() > 1e-3, "what is before the window counts"


def test_a_ranking_counts_the_whole_history(home, log):
    """What it scores of a user is what an event with that history gets."""
    servable = Servable.open(home / "servable")
    catalogue, encoder = Catalogue.of(servable), EventEncoder(servable)
    ids = np.arange(1, len(catalogue.keys))
    for who, rows in [*log.groupby("who")][:1]:
        items = rows["what"].tolist()
        assert len(items) > 4 * WINDOW
        ranked = Ranker(servable, catalogue).score(UserHistory({"who": who}, items), ids, {})
        event = {"who": who, "history": items, "candidates": catalogue.keys[ids].tolist()}
        (scores,) = Scorer(servable).score_events([encoder.encode(encoder.parse(event))])
        np.testing.assert_allclose(ranked, scores, atol=1e-6)


def test_a_column_that_is_not_of_the_item_is_refused(home):
    (home / "wrong.yaml").write_text("lifetime_counts: [who]")
    given = ("--output_path", home / "wrong", *OPTIONS, "--features", home / "wrong.yaml")
    refused = answer("preprocess", "log", home / "log.parquet", *given)
    assert refused.returncode == 2 and "lifetime_counts" in refused.stderr
