"""Schemas and datasets of numbers and categories, small enough to train in no time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.schemas.channels import CATEGORICAL, LABEL, NUMERICAL
from merlin_sim.schemas.dataset import write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec

CARDINALITIES, NUMBERS = (7, 40, 3), 4


def ranking_schema(cardinalities=CARDINALITIES, numbers=NUMBERS):
    tags = [Tags.TARGET, Tags.BINARY_CLASSIFICATION]
    columns = [ColumnSchema("clicked", dtype="int8", tags=tags)]
    for index, rows in enumerate(cardinalities):
        name = f"category_{index}"
        domain = {"domain": {"min": 0, "max": rows - 1, "name": name}}
        tags = [Tags.CATEGORICAL]
        columns.append(ColumnSchema(name, dtype="int64", tags=tags, properties=domain))
    for index in range(numbers):
        tags = [Tags.CONTINUOUS]
        columns.append(ColumnSchema(f"number_{index}", dtype="float32", tags=tags))
    return Schema(columns)


def random_rows(rows, seed=0, cardinalities=CARDINALITIES, numbers=NUMBERS):
    """Columns whose clicks depend on the product of two of them and on a number."""
    random = np.random.default_rng(seed)
    columns = {
        f"category_{index}": random.integers(0, count, rows)
        for index, count in enumerate(cardinalities)
    }
    columns |= {
        f"number_{index}": random.standard_normal(rows).astype(np.float32)
        for index in range(numbers)
    }
    logit = 3.0 * ((columns["category_0"] % 2) == (columns["category_1"] % 2)) - 1.5
    logit = logit + columns.get("number_0", 0)
    clicked = (random.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return {"clicked": clicked, **columns}


def write_ranking_dataset(directory, rows=2000, cardinalities=CARDINALITIES, numbers=NUMBERS):
    """Write a dataset directory, whose first category has a vocabulary."""
    (directory / "categories").mkdir(parents=True)
    sources, columns = {}, {}
    for seed, mapping in enumerate(("train", "test")):
        columns = random_rows(rows, seed, cardinalities, numbers)
        pq.write_table(pa.table(columns), directory / f"{mapping}.parquet")
        sources[mapping] = (Chunk("parquet", tuple(columns), (f"{mapping}.parquet",)),)
    categories = [name for name in columns if name.startswith("category")]
    numerical = [name for name in columns if name.startswith("number")]
    features = {"clicked": Feature("int8")}
    features |= {n: Feature("int64", c) for n, c in zip(categories, cardinalities, strict=True)}
    features |= {name: Feature("float32") for name in numerical}
    channels = {LABEL: ("clicked",), CATEGORICAL: tuple(categories), NUMERICAL: tuple(numerical)}
    write_documents(directory, FeatureSpec(features, sources, channels, {}))
    keys = [f"key {index}" for index in range(1, cardinalities[0])]
    vocabulary = pa.table({"id": np.arange(1, cardinalities[0]), "key": keys})
    pq.write_table(vocabulary, directory / "categories/category_0.parquet")
    return directory
