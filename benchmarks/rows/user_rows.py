"""A dataset directory with one row per user for the benchmarks: full histories, popular items."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.workflows.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.dataset_spec import samples_schema, users_layout_of, users_spec
from merlin_sim.workflows.rules import SampleRules

ITEMS, CATEGORIES = 367_983, 1_601  # as Amazon Books has of users with 20 interactions and more
DRAWN_FROM = 22_900_000
COLUMNS = BehaviourColumns("user_id", "item_id", "timestamp", item_features=("cat_id",))


def write_users(
    directory: Path,
    users: int,
    interactions: int,
    length: int,
    negatives: int = 1,
    items: int = ITEMS,
    categories: int = CATEGORIES,
    drawn_from: int = DRAWN_FROM,
) -> DatasetDirectory:
    """Write users with so many interactions each; every sample has ``length`` before it.

    Args:
        directory: Where; it must not exist.
        users: How many.
        interactions: Of each user; all but the newest one train.
        length: Of a sample's history.
        negatives: Of each positive.
        items: How many there are.
        categories: How many categories of items.
        drawn_from: Interactions that negatives are drawn from.
    """
    random = np.random.default_rng(1)
    (directory / "users").mkdir(parents=True)
    (directory / "categories").mkdir()
    weights = random.permutation(np.arange(1, items + 1) ** -0.8)
    counts = random.multinomial(drawn_from, weights / weights.sum())
    table = {"id": np.arange(1, items + 1), "count": counts}
    table["cat_id"] = random.integers(1, categories + 1, items)
    pq.write_table(pa.table(table), directory / "categories/item_id.parquet")
    drawn = random.choice(items, users * interactions, p=counts / counts.sum()) + 1
    offsets = np.arange(users + 1, dtype=np.int32) * interactions
    last = np.full(users, interactions - 1)
    columns = {
        "user_id": np.arange(1, users + 1),
        "train_begin": np.full(users, length), "train_end": last,
        "test_begin": last, "test_end": last + 1,
        "item_id": pa.ListArray.from_arrays(pa.array(offsets), pa.array(drawn.astype(np.int32))),
    }  # fmt: skip
    pq.write_table(pa.table(columns), directory / "users/part.0.parquet", row_group_size=users)
    sizes = {"user_id": users, "item_id": items, "cat_id": categories}
    rules = SampleRules(max_sequence_length=length, negatives_per_positive=negatives)
    schema = samples_schema(COLUMNS, sizes, length)
    layout = replace(users_layout_of(COLUMNS, rules), user_hash=None)  # all have ids
    write_documents(directory, users_spec(schema, layout, ["users/part.0.parquet"]))
    return DatasetDirectory.open(directory)
