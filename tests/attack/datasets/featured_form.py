"""A small good dataset of samples with all that stands beside ids: numbers, vectors, lists."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa

from .draft import (
    CHANNELS,
    FILES,
    LONGEST,
    SIZES,
    Draft,
    Form,
    documents_of,
    make_table,
    plain_spec,
)

GENRES, MOST_GENRES, WIDTH = 11, 3, 2
MORE: dict[str, dict[str, Any]] = {
    "age": {"dtype": "float32"},
    "price": {"dtype": "float32"},
    "look": {"dtype": "float32", "dimensions": [WIDTH]},
    "genres": {"dtype": "int64", "cardinality": GENRES, "dimensions": [MOST_GENRES]},
    "ago": {"dtype": "float32", "dimensions": [LONGEST]},
}
FEATURED = {**CHANNELS} | {
    "user_numerical": ["age"],
    "target_item_numerical": ["price", "look"],
    "target_item_lists": ["genres"],
    "history_time_intervals": ["ago"],
}
LARGEST = {**SIZES, **dict.fromkeys(MORE), "genres": GENRES}
LISTS = [*(name for name in SIZES if "seen" in name), "look", "genres", "ago"]


def featured_spec() -> dict[str, Any]:
    """The spec as YAML holds it."""
    spec = plain_spec()
    spec["feature_spec"] |= copy.deepcopy(MORE)
    for chunks in spec["source_spec"].values():
        chunks[0]["features"] = list(LARGEST)
    spec["channel_spec"] = copy.deepcopy(FEATURED)
    return spec


def make_featured(rows: int, seed: int, padded: bool) -> pa.Table:
    """Rows drawn at random: intervals as long as the positive history."""
    random = np.random.default_rng([seed, 5])
    table = make_table(rows, seed, padded)
    for name in ("age", "price"):
        table = table.append_column(name, pa.array(random.standard_normal(rows), pa.float32()))
    looks = random.standard_normal((rows, WIDTH)).astype(np.float32).tolist()
    table = table.append_column("look", pa.array(looks, pa.list_(pa.float32())))
    genres = [
        random.integers(1, GENRES + 1, random.integers(0, MOST_GENRES + 1)).tolist()
        for _ in range(rows)
    ]
    table = table.append_column("genres", pa.array(genres, pa.list_(pa.int64())))
    ago = []
    for seen in table["thing_seen"].to_pylist():
        hours = np.sort(random.random(len(seen)).astype(np.float32) * 90 + 1)[::-1]
        ago.append(np.where(np.array(seen, np.int64) > 0, hours, 0).tolist() if seen else [])
    return table.append_column("ago", pa.array(ago, pa.list_(pa.float32())))


def make_featured_draft(base: dict[str, Any]) -> Draft:
    """Make the good dataset of a plan's base."""
    tables, writing = {}, {}
    for number, (name, rows) in enumerate(zip(FILES, base["sizes"]["rows"], strict=True)):
        tables[name] = make_featured(rows, base["seed"] + number, bool(base["padded"]))
        writing[name] = {"row_group_size": max(1, base["sizes"]["group"]), "compression": "snappy"}
    return Draft(tables, writing, copy.copy(documents_of(featured_spec)))


FORM = Form(
    "sim",
    {name: list(LARGEST) for name in FILES},
    LARGEST,
    LISTS,
    ["label"],
    FEATURED,
    make_featured_draft,
)
