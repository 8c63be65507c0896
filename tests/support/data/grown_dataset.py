"""A small dataset with vocabularies, and one that grew from it: the same keys, then new ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from small_logs import CATEGORIES, ITEMS, USERS, sim_spec, sim_table

from merlin_sim.schemas.dataset import write_documents

SIZES = {"who": USERS, "thing": ITEMS, "kind": CATEGORIES}
MORE = {"who": 5, "thing": 9, "kind": 2}
FILES = {"train": (150, 90), "test": (60,)}


def write_keyed_dataset(directory: Path, grown: bool = False, order: int = 1) -> Path:
    """Write a dataset directory; ``order`` -1 gives the keys their ids the other way round."""
    sizes = {name: size + (MORE[name] if grown else 0) for name, size in SIZES.items()}
    names = {
        mapping: [f"{mapping}/part.{number}.parquet" for number in range(len(rows))]
        for mapping, rows in FILES.items()
    }
    for index, (mapping, rows) in enumerate(FILES.items()):
        (directory / mapping).mkdir(parents=True)
        for number, (name, count) in enumerate(zip(names[mapping], rows, strict=True)):
            table = sim_table(count, seed=100 * index + number + (50 if grown else 0))
            pq.write_table(_with_new_ids(table) if grown else table, directory / name)
    (directory / "categories").mkdir()
    for name, size in sizes.items():
        keys = [f"{name} {number}" for number in range(1, size + 1)][::order]
        columns = {"id": np.arange(1, size + 1), "key": keys}
        if name == "thing":
            columns["kind"] = kinds_of(size)
        pq.write_table(pa.table(columns), directory / f"categories/{name}.parquet")
    spec = sim_spec(names["train"], names["test"])
    domains = {feature: feature.split("_")[0] for feature in spec.feature_spec}
    features = {
        name: dataclasses.replace(feature, cardinality=sizes.get(domains[name]))
        for name, feature in spec.feature_spec.items()
    }
    write_documents(directory, dataclasses.replace(spec, feature_spec=features))
    return directory


def kinds_of(things: int) -> np.ndarray:
    """The kind of each thing by its id, from 1; the last new ones are of a new kind."""
    kinds = 1 + np.arange(things) % CATEGORIES
    kinds[ITEMS + 6 :] = CATEGORIES + 1
    return kinds


def _with_new_ids(table: pa.Table) -> pa.Table:
    """Let every fifth row be of new things and users."""
    rows = np.arange(table.num_rows)
    new = rows % 5 == 0
    for name, size in (("who", USERS), ("thing", ITEMS), ("kind", CATEGORIES)):
        values = np.where(new, size + 1 + rows % MORE[name], table[name].to_numpy())
        index = table.column_names.index(name)
        table = table.set_column(index, name, pa.array(values))
    return table
