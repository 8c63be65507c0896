"""The logs on which bench_quality.py compares models, and how they become samples."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from baselines.impressions_log import BEGIN, DAY, impressions

from .quality_models import COUNTS, RECENCY

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "merlin-sim/real-data"
HEAVY, LIGHT = 250, 318
"""Households: those who bought most, and those who come after them."""
IMPRESSIONS_TEST, IMPRESSIONS_VALIDATION = BEGIN + 26 * DAY, BEGIN + 23 * DAY

Command = Callable[..., None]
"""Runs `merlin-sim` with these words."""


class Log(NamedTuple):
    """A log, and how it becomes samples."""

    title: str
    lengths: tuple[int, ...]
    make: Callable[[Command, Path], pd.DataFrame]
    user: str
    item: str
    time: str
    features: tuple[str, ...]
    """Of items."""
    options: str
    described: dict[str, Any] = {}
    """What stands in the file of features."""


def _cached(name: str) -> pd.DataFrame:
    source = CACHE / f"{name}.parquet"
    if not source.exists():
        raise SystemExit(f"{source} is missing: `make real-data` brings it.")
    return pd.read_parquet(source)


def _purchases(first: int, last: int) -> Callable[[Command, Path], pd.DataFrame]:
    def make(command: Command, folder: Path) -> pd.DataFrame:
        log = _cached("purchases")
        households = log.household_id.value_counts().sort_index().sort_values(kind="stable")
        return log[log.household_id.isin(households.index[::-1][first:last])]

    return make


def _liked(command: Command, folder: Path) -> pd.DataFrame:
    log = _cached("movielens")
    rating = log.rating.astype(float)
    return log.assign(liked=(rating > 3).astype(np.int64))[rating != 3]


def _readers(command: Command, folder: Path) -> pd.DataFrame:
    words = "--users 400 --short_users 0 --items 4000 --categories 40 --mean_length 400"
    words += " --interests 4 --long_term 0.6 --short_term 0.2 --seed 7 --overwrite"
    command("data", "synthesize", "--output", folder / "readers", *words.split())
    reviews = map(json.loads, (folder / "readers/reviews_Books.json").open())
    log = pd.DataFrame(reviews)[["reviewerID", "asin", "unixReviewTime"]]
    books = map(ast.literal_eval, (folder / "readers/meta_Books.json").open())
    category = {book["asin"]: book["categories"][0][-1] for book in books}
    return log.assign(category=log.asin.map(category).fillna("no_category"))


PURCHASES = {
    "lengths": (100, 500),
    "user": "household_id",
    "item": "product_id",
    "time": "transaction_timestamp",
    "features": ("department", "product_category", "product_type"),
}
PURCHASES_SPLIT = "--test_from 2017-12-18 --validation_from 2017-12-04"
MOVIELENS = {
    "lengths": (100,),
    "user": "user_id",
    "item": "item_id",
    "time": "timestamp",
    "features": ("genre", "genres", "release_year"),
}
USERS_SPLIT = "--test_users 0.2 --validation_users 0.1"
LOGS = {
    "purchases": Log(
        title=f"Purchases of the {HEAVY} households with most, from the 1,601st on",
        make=_purchases(0, HEAVY),
        options=f"--shortest_sequence_for_training 1600 {PURCHASES_SPLIT}",
        **PURCHASES,
    ),
    "purchases-light": Log(
        title=f"Purchases of the {LIGHT} households after them, from the 801st on",
        make=_purchases(HEAVY, HEAVY + LIGHT),
        options=f"--shortest_sequence_for_training 800 {PURCHASES_SPLIT}",
        **PURCHASES,
    ),
    "movielens-liked": Log(
        title="MovieLens 100K: rated 4 or 5, against 1 or 2",
        make=_liked,
        options=f"--label_column liked --shortest_sequence_for_user 10 {USERS_SPLIT}",
        **MOVIELENS,
    ),
    "movielens-rated": Log(
        title="MovieLens 100K: rated at all, against drawn films",
        make=lambda command, folder: _cached("movielens"),
        options=f"--shortest_sequence_for_training 20 {USERS_SPLIT}",
        **MOVIELENS,
    ),
    "impressions": Log(
        title="Impressions with planted aisles and prices",
        lengths=(100,),
        make=lambda command, folder: impressions(),
        user="shopper",
        item="item",
        time="time",
        features=("aisle", "price"),
        options="--label_column clicked --shortest_sequence_for_user 1"
        f" --test_from {IMPRESSIONS_TEST} --validation_from {IMPRESSIONS_VALIDATION}",
        described={"features": {"price": {"type": "number", "of": "item", "buckets": 16}}},
    ),
    "readers": Log(
        title="Synthetic readers with lasting interests, from the 101st book on",
        lengths=(100,),
        make=_readers,
        user="reviewerID",
        item="asin",
        time="unixReviewTime",
        features=("category",),
        options=f"--shortest_sequence_for_training 100 --timestamp_unit order {USERS_SPLIT}",
    ),
}


def write_log(name: str, command: Command, folder: Path) -> Path:
    """Write a log's rows by time, those of one time in an order drawn by chance."""
    path, log = folder / f"{name}.parquet", LOGS[name]
    if not path.exists():
        rows = log.make(command, folder).sample(frac=1, random_state=1)
        rows = rows.sort_values(log.time, kind="stable", ignore_index=True)
        rows.to_parquet(path)
    return path


def make_dataset(
    name: str, length: int, more: Collection[str], command: Command, folder: Path
) -> Path:
    """Go from a log to a dataset of users, once; ``more`` names counts, or counts and recency.

    With recency comes, without labels, what is popular of late.
    """
    log = LOGS[name]
    columns = [
        feature for feature in log.features if feature not in log.described.get("features", {})
    ]
    words = ["--user_column", log.user, "--item_column", log.item, "--timestamp_column", log.time]
    words += ["--item_feature_columns", ",".join(columns), "--layout", "users"]
    described = dict(log.described)
    if RECENCY in more:
        labelled = "--label_column" in log.options
        kinds = ["count", "target"] if labelled else ["popularity", "recent_popularity"]
        described["encodings"] = dict.fromkeys((log.item, *log.features), [*kinds, RECENCY])
    parts = [name, str(length), *more]
    if described:
        parts.append(hashlib.sha256(yaml.safe_dump(described).encode()).hexdigest()[:8])
    path = folder / "-".join(parts)
    if path.exists():
        return path
    if described:
        file = folder / f"{path.name}.yaml"
        file.write_text(yaml.safe_dump(described))
        words += ["--features", file]
    words += ["--counts"] if COUNTS in more else []
    words += ["--max_sequence_length", length, *log.options.split(), "--output_path", path]
    command("preprocess", "log", write_log(name, command, folder), *words)
    return path
