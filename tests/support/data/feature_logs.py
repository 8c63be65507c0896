"""A small log of clicks with every kind of feature beside ids, as CSV and as parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from in_process import run

from merlin_sim.schemas.dataset import DatasetDirectory

COLUMNS = ("--user_column", "who", "--item_column", "what", "--timestamp_column", "when")
OPTIONS = (
    *COLUMNS, "--item_feature_columns", "brand", "--shortest_sequence_for_user", 5,
    "--max_sequence_length", 12, "--scheduler", "single",
    "--order_of_equal_times", "log", "--validation", "none",
)  # fmt: skip
VECTOR = 4
FEATURES = """
features:
  price:
    type: number
    of: item
    operators: [FillMedian, {Clip: {min_value: 1}}, LogOp, Normalize]
  weight: {type: number, of: item, buckets: 4}
  age: {type: number, of: user, operators: [{FillMissing: {fill_val: 30}}, Normalize]}
  income: {type: number, of: user, buckets: [0.25, 0.5]}
  place: {type: number, of: interaction, operators: [NormalizeMinMax], lags: [1, 3]}
  when: {type: time, of: interaction, cycles: [hour, weekday]}
  released: {type: time, of: item, cycles: [month]}
  genres: {type: list, of: item, longest: 3}
  look: {type: vector, of: item, size: 4}
  size: {type: category, of: item}
time_intervals: hours
crosses:
  income_brand: {columns: [income, brand], buckets: 50}
"""


def feature_log(users=40, rows=900, seed=0) -> pd.DataFrame:
    """Each item has one value of each of its features; some have none."""
    random = np.random.default_rng(seed)
    item, who = random.integers(0, 30, rows), random.integers(0, users, rows)
    price = np.round(random.lognormal(2, 1, 30), 2)
    price[::7] = np.nan
    looks = random.normal(size=(30, VECTOR)).round(4)
    seconds = np.sort(random.integers(0, 10**6, rows))
    return pd.DataFrame(
        {
            "who": [f"u{number}" for number in who],
            "what": [f"i{number}" for number in item],
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(seconds, "s"),
            "clicked": (random.random(rows) < 0.5).astype(int),
            "brand": [f"b{number % 6}" for number in item],
            "price": price[item],
            "weight": random.random(30).round(3)[item],
            "age": np.where(who % 5, who + 0.5, np.nan),
            "income": random.random(users).round(4)[who],
            "place": random.integers(1, 9, rows).astype(float),
            "released": (pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(30) * 23, "D"))[
                item
            ],
            "genres": [genres_of(number) for number in item],
            "look": [looks[number] if number % 9 else None for number in item],
            "size": np.round(item % 4 + 0.5, 1),
        }
    )


def genres_of(item: int) -> list[str]:
    return [] if item % 6 == 0 else list(dict.fromkeys([f"g{item % 3}", f"g{item % 5}", "g9"]))


def write_csv(log: pd.DataFrame, path: Path) -> Path:
    """Lists and vectors as text, prices with a needless zero."""
    text = log.copy()
    text["genres"] = [" | ".join(genres) for genres in log["genres"]]
    text["look"] = ["" if look is None else "|".join(map(str, look)) for look in log["look"]]
    text["price"] = ["" if np.isnan(price) else f"{price:.3f}" for price in log["price"]]
    text["size"] = [f"{size:.2f}" for size in log["size"]]
    text.to_csv(path, index=False)
    return path


def write_features(path: Path, text: str = FEATURES) -> Path:
    path.write_text(text)
    return path


def dataset_of(log: pd.DataFrame, folder: Path, features: str, *more: str) -> DatasetDirectory:
    """The dataset ``d`` in a folder, of a log with these features."""
    log.to_parquet(folder / "log.parquet")
    described = ("--features", write_features(folder / "f.yaml", features))
    output = ("--output_path", folder / "d")
    run("preprocess", "log", folder / "log.parquet", *OPTIONS, *described, *output, *more)
    return DatasetDirectory.open(folder / "d")
