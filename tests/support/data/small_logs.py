"""Small parquet directories of made-up logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

LONGEST = 6
CARDINALITY = 40


def make_schema(ragged: bool = True) -> Schema:
    counts = {"min": 0 if ragged else LONGEST, "max": LONGEST}
    domain = {"min": 0, "max": CARDINALITY, "name": "item_id"}

    def ids(name, **properties):
        properties["domain"] = domain
        return ColumnSchema(
            name,
            tags=[Tags.CATEGORICAL],
            dtype=np.int64,
            is_list="value_count" in properties,
            properties=properties,
        )

    label = ColumnSchema("label", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.float32)
    return Schema([label, ids("row"), ids("item"), ids("history", value_count=counts)])


def make_table(rows: int, first: int = 0, ragged: bool = True, seed: int = 0) -> pa.Table:
    """Rows numbered from ``first`` in the column "row"; ids are unique to be counted."""
    random = np.random.default_rng([seed, first])
    lengths = random.integers(0, LONGEST + 1, rows)
    histories = [random.integers(1, CARDINALITY + 1, n).tolist() for n in lengths]
    if not ragged:
        histories = [[0] * (LONGEST - len(values)) + values for values in histories]
    return pa.table(
        {
            "label": pa.array(random.integers(0, 2, rows).astype(np.float32)),
            "row": pa.array(np.arange(first, first + rows)),
            "item": pa.array(random.integers(1, CARDINALITY + 1, rows)),
            "history": pa.array(histories, pa.list_(pa.int64())),
            "not_asked_for": pa.array([f"text {i}" for i in range(rows)], pa.string()),
        }
    )


def write_files(directory: Path, files: list[list[int]], ragged: bool = True) -> list[str]:
    """Write one file per entry, with row groups of the sizes that it lists."""
    directory.mkdir(parents=True, exist_ok=True)
    first = 0
    paths = []
    for number, groups in enumerate(files):
        path = str(directory / f"part.{number}.parquet")
        table = make_table(0)
        with pq.ParquetWriter(path, table.schema) as writer:
            for rows in groups:
                writer.write_table(make_table(rows, first, ragged), row_group_size=max(rows, 1))
                first += rows
        paths.append(path)
    return paths


def open_dataset(paths: list[str], ragged: bool = True, numbered: bool = True) -> Dataset:
    """Open files; with ``numbered`` the rows' numbers are not bounded by a table."""
    schema = make_schema(ragged)
    if numbered:
        plain = ColumnSchema("row", dtype=np.int64)
        schema = Schema([plain if column.name == "row" else column for column in schema])
    # Merlin samples the first row group for its size, and cannot where that one is empty.
    return Dataset(paths, engine="parquet", schema=schema, cpu=True, row_groups_per_part=1)


ITEMS, CATEGORIES, USERS, HISTORY = 60, 7, 50, 12


def sim_spec(train: list[str], test: list[str], padded: bool = False):
    from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec

    def ids(cardinality, length=None):
        return Feature("int64", cardinality, (length,) if length else None, {})

    features = {"clicked": Feature("float32", None, None, {}), "who": ids(USERS)}
    for suffix, length in (("", None), ("_seen", HISTORY), ("_unseen", HISTORY)):
        features[f"thing{suffix}"] = ids(ITEMS, length)
        features[f"kind{suffix}"] = ids(CATEGORIES, length)
    names = tuple(features)
    channels = {
        "label": ("clicked",),
        "user_features": ("who",),
        "target_item_features": ("thing", "kind"),
        "positive_history": ("thing_seen", "kind_seen"),
        "negative_history": ("thing_unseen", "kind_unseen"),
    }
    sources = {
        "train": (Chunk("parquet", names, tuple(train)),),
        "test": (Chunk("parquet", names, tuple(test)),),
    }
    return FeatureSpec(features, sources, channels, {})


def sim_table(rows: int, seed: int) -> pa.Table:
    """Clicks happen on things of the kind that the history is full of."""
    random = np.random.default_rng(seed)
    kind_of = np.concatenate([[0], random.integers(1, CATEGORIES + 1, ITEMS)])
    kind_of[1 : CATEGORIES + 1] = np.arange(1, CATEGORIES + 1)
    taste = random.integers(1, CATEGORIES + 1, rows)
    lengths = random.integers(0, HISTORY + 1, rows)
    label = random.integers(0, 2, rows)
    by_kind = [np.flatnonzero(kind_of == kind) for kind in range(CATEGORIES + 1)]
    target = np.array(
        [
            random.choice(by_kind[kind]) if clicked else random.integers(1, ITEMS + 1)
            for kind, clicked in zip(taste, label, strict=True)
        ]
    )
    seen = [random.choice(by_kind[k], n) for k, n in zip(taste, lengths, strict=True)]
    unseen = [random.integers(1, ITEMS + 1, n) for n in lengths]
    lists = pa.list_(pa.int64())
    return pa.table(
        {
            "clicked": pa.array(label.astype(np.float32)),
            "who": pa.array(random.integers(1, USERS + 1, rows)),
            "thing": pa.array(target.astype(np.int64)),
            "kind": pa.array(kind_of[target].astype(np.int64)),
            "thing_seen": pa.array([row.tolist() for row in seen], lists),
            "kind_seen": pa.array([kind_of[row].tolist() for row in seen], lists),
            "thing_unseen": pa.array([row.tolist() for row in unseen], lists),
            "kind_unseen": pa.array([kind_of[row].tolist() for row in unseen], lists),
        }
    )


def write_sim_dataset(directory: Path, train=(170, 55, 75), test=(61, 40)) -> Path:
    """A dataset directory of unequal files, whose row groups are unequal too."""
    from merlin_sim.schemas.dataset import write_documents

    names = {}
    for split, (mapping, sizes) in enumerate((("train", train), ("test", test))):
        (directory / mapping).mkdir(parents=True)
        names[mapping] = [f"{mapping}/part.{i}.parquet" for i in range(len(sizes))]
        for number, (name, rows) in enumerate(zip(names[mapping], sizes, strict=True)):
            table = sim_table(rows, seed=100 * split + number)
            pq.write_table(table, directory / name, row_group_size=40 + 7 * number)
    write_documents(directory, sim_spec(names["train"], names["test"]))
    return directory


SMALL_OPTIONS = {
    "embedding_dim": 4,
    "stage_one_mlp_dims": (8,),
    "stage_two_mlp_dims": (8, 4),
    "aux_mlp_dims": (6,),
    "long_seq_length": 8,
    "top_k": 4,
}
