"""The Amazon Books rules as one would write them in a notebook: the baseline of bench_preprocess.

Everything that pandas does in one call is left to it; what it cannot do (prefixes, draws) is
written with list comprehensions and numpy. Nothing of the package is used.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pandas as pd


def draw_lists(rng, population, lengths):
    """A list of drawn items for each length."""
    drawn = population[rng.integers(0, len(population), int(lengths.sum()))]
    return np.split(drawn, np.cumsum(lengths)[:-1])


def preprocess(raw: Path, output: Path, longest=100, shortest=20, seed=12345) -> None:
    """Read raw files, write train.parquet and test.parquet."""
    rng = np.random.default_rng(seed)
    reviews = pd.read_json(
        raw / "reviews_Books.json", lines=True, dtype={"reviewerID": str, "asin": str}
    )[["reviewerID", "asin", "unixReviewTime"]]
    with open(raw / "meta_Books.json") as file:
        metadata = [ast.literal_eval(line) for line in file]
    category = {entry["asin"]: entry["categories"][0][-1] for entry in metadata}

    counts = reviews.groupby("reviewerID")["asin"].transform("size")
    kept = reviews[counts >= shortest].copy()
    kept["category"] = kept["asin"].map(category).fillna("no_category")
    kept["unixReviewTime"] = kept["unixReviewTime"].astype("int64")
    kept = kept.sort_values(["reviewerID", "unixReviewTime", "asin"])
    kept["user_id"] = kept["reviewerID"].astype("category").cat.codes.astype("int64") + 1
    kept["item_id"] = kept["asin"].astype("category").cat.codes.astype("int64") + 1
    kept["cat_id"] = kept["category"].astype("category").cat.codes.astype("int64") + 1
    category_of = kept.drop_duplicates("item_id").set_index("item_id")["cat_id"]
    table = np.zeros(len(category_of) + 1, np.int64)
    table[category_of.index] = category_of
    population = kept["item_id"].to_numpy()

    histories = kept.groupby("user_id")["item_id"].agg(list)
    rows = [
        (user, items[position], items[max(0, position - longest) : position], position)
        for user, items in histories.items()
        for position in range(1, len(items))
    ]
    frame = pd.DataFrame(rows, columns=["user_id", "item_id_trgt", "item_id_pos", "position"])
    is_test = frame["position"] == frame["user_id"].map(histories.str.len()) - 1
    for name, part in (("test", frame[is_test]), ("train", frame[~is_test])):
        part = part.drop(columns="position")
        negatives = part.assign(
            label=0, item_id_trgt=population[rng.integers(0, len(population), len(part))]
        )
        both = pd.concat([part.assign(label=1), negatives]).sample(frac=1, random_state=seed)
        both["cat_id_trgt"] = table[both["item_id_trgt"]]
        lengths = both["item_id_pos"].str.len().to_numpy()
        both["item_id_neg"] = draw_lists(rng, population, lengths)
        both["cat_id_pos"] = [table[items] for items in both["item_id_pos"]]
        both["cat_id_neg"] = [table[items] for items in both["item_id_neg"]]
        both.to_parquet(output / f"{name}.parquet", index=False)
        print(f"{name}: {len(both):,} rows")


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    preprocess(Path(sys.argv[1]), Path(sys.argv[2]))
