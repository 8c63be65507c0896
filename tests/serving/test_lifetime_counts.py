"""Counts over a user's whole history: the same in rows, from users, and of raw events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from feature_logs import COLUMNS, feature_log
from in_process import answer, run

from merlin_sim.models import build_model
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.encoder import EventEncoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.retrieval.items import Catalogue
from merlin_sim.serving.retrieval.recommender import Ranker
from merlin_sim.serving.retrieval.users import UserHistory
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.triton.export import export_model

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
    dataset = DatasetDirectory.open(home / "users")
    tf.keras.utils.set_random_seed(3)
    model = build_model("din", dataset.schema, embedding_dim=4)
    for variable in model.trainable_variables:  # so that the counts matter
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    export_model(model, dataset, home / "servable")
    expected = model.predict(DatasetDirectory.open(home / "samples"), batch_size=16)[:, 0]
    np.save(home / "expected.npy", expected)
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


def test_raw_events_and_kept_histories_get_the_scores_of_their_rows(home, log, tmp_path):
    rows, expected = rows_of(home, "test"), np.load(home / "expected.npy")
    events = [
        {
            "who": row["who"],
            "history": log[log["who"] == row["who"]]["what"].tolist()[:-1],
            "candidates": [row["what_trgt"]],
        }
        for row in rows.to_dict("records")
    ]
    log.groupby("who").apply(lambda rows: rows[:-1]).to_parquet(tmp_path / "before.parquet")
    run("histories", "load", tmp_path / "store", tmp_path / "before.parquet", *COLUMNS)
    servable = Servable.open(home / "servable")
    scorer, plain = Scorer(servable), EventEncoder(servable)
    stored = EventEncoder(servable, histories=open_store(str(tmp_path / "store")))

    def score(encoder, given):
        encoded = [encoder.encode(encoder.parse(event)) for event in given]
        return np.concatenate(scorer.score_events(encoded))

    scores = score(plain, events)
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    kept = [{n: value for n, value in event.items() if n != "history"} for event in events]
    np.testing.assert_allclose(score(stored, kept), scores, atol=1e-6)
    cut = score(plain, [{**event, "history": event["history"][-WINDOW:]} for event in events])
    assert np.abs(np.subtract(cut, scores)).max() > 1e-3, "what is before the window counts"
    # A ranking counts the whole history too.
    catalogue, event = Catalogue.of(servable), max(events, key=lambda one: len(one["history"]))
    ids = np.arange(1, len(catalogue.keys))
    history = UserHistory({"who": event["who"]}, event["history"])
    assert len(history.items) > 4 * WINDOW
    ranked = Ranker(servable, catalogue).score(history, ids, {})
    asked = {**event, "candidates": catalogue.keys[ids].tolist()}
    np.testing.assert_allclose(ranked, score(plain, [asked]), atol=1e-6)


def test_a_column_that_is_not_of_the_item_is_refused(home):
    (home / "wrong.yaml").write_text("lifetime_counts: [who]")
    given = ("--output_path", home / "wrong", *OPTIONS, "--features", home / "wrong.yaml")
    refused = answer("preprocess", "log", home / "log.parquet", *given)
    assert refused.returncode == 2 and "lifetime_counts" in refused.stderr
