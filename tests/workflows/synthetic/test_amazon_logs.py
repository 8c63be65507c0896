from __future__ import annotations

import ast
import gzip
import json

import numpy as np
import pandas as pd
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.synthetic.amazon_logs import (
    METADATA_FILE,
    REVIEWS_FILE,
    PlantedBehaviour,
    plant_interactions,
    synthesize,
)

SMALL = PlantedBehaviour(users=300, items=500, categories=20, duplicates=0.05, seed=3)


def test_the_files_have_the_amazon_layout(tmp_path):
    written = synthesize(tmp_path, SMALL, missing_metadata=0.1, review_text=100)
    reviews, metadata = (
        (tmp_path / name).read_text().splitlines() for name in (REVIEWS_FILE, METADATA_FILE)
    )
    reviews = pd.DataFrame(map(json.loads, reviews))
    metadata = list(map(ast.literal_eval, metadata))
    assert len(reviews) == written.interactions
    assert reviews["reviewerID"].nunique() == written.users == 300
    assert reviews["asin"].nunique() == written.items_in_log
    assert len(metadata) == written.items_with_metadata
    assert 425 <= len(metadata) <= 475
    assert reviews["reviewText"].str.len().eq(100).all()
    days = pd.to_datetime(reviews["unixReviewTime"], unit="s")
    assert (days.dt.strftime("%m %d, %Y") == reviews["reviewTime"]).all()
    leaves = {line["categories"][0][-1] for line in metadata}
    assert len(leaves) == 20
    assert any("'" in leaf for leaf in leaves)
    lengths = reviews.groupby("reviewerID").size()
    assert 36 <= (lengths < 20).sum() <= 84
    assert reviews.duplicated(["reviewerID", "asin", "unixReviewTime"]).sum() > 300


def test_the_seed_alone_decides_the_bytes(tmp_path):
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        (tmp_path / name).mkdir()
        behaviour = PlantedBehaviour(users=50, items=100, categories=5, seed=seed)
        synthesize(tmp_path / name, behaviour, compress=True)
    reviews = {name: (tmp_path / name / f"{REVIEWS_FILE}.gz").read_bytes() for name in "abc"}
    assert reviews["a"] == reviews["b"] != reviews["c"]
    assert json.loads(gzip.decompress(reviews["a"]).splitlines()[0])["asin"]


def seen_long_ago(long_term: float) -> float:
    """How often a category that the last 10 interactions do not show was shown before them."""
    log = plant_interactions(
        PlantedBehaviour(
            users=400, items=4000, categories=400, long_term=long_term, short_users=0, duplicates=0
        )
    )
    order = np.lexsort([log.day, log.user])
    category = log.item[order] // 10
    histories = np.split(category, np.flatnonzero(np.diff(log.user[order])) + 1)
    unseen = [h for h in histories if h[-1] not in h[-11:-1]]
    return float(np.mean([h[-1] in h[:-11] for h in unseen]))


def test_the_long_term_part_is_as_strong_as_asked():
    none, half, strong = [seen_long_ago(strength) for strength in (0.0, 0.3, 0.7)]
    assert none < 0.25
    assert none + 0.15 < half < strong - 0.1


def test_all_problems_of_the_options_are_reported_at_once():
    with pytest.raises(MerlinSimError) as error:
        PlantedBehaviour(users=0, items=5, categories=9, long_term=0.8, short_term=0.8)
    for name in ("`users`", "`items`", "`long_term`"):
        assert name in str(error.value)
