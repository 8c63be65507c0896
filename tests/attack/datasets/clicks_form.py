"""A small good dataset of numbers and categories, as DLRM and DCNv2 read it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pyarrow as pa

from .draft import FILES, Draft, Form, documents_of

CARDINALITIES = {"site": 40, "device": 7, "constant": 1, "city": 300}
NUMBERS = ["age", "price"]
LARGEST = {"clicked": None, **{n: c - 1 for n, c in CARDINALITIES.items()}}
LARGEST |= dict.fromkeys(NUMBERS)
CHANNELS = {"label": ["clicked"], "categorical": list(CARDINALITIES), "numerical": NUMBERS}


def clicks_spec() -> dict[str, Any]:
    """The spec as YAML holds it."""
    features: dict[str, Any] = {"clicked": {"dtype": "int8"}}
    features |= {n: {"dtype": "int32", "cardinality": c} for n, c in CARDINALITIES.items()}
    features |= {name: {"dtype": "float32"} for name in NUMBERS}
    chunk = {"type": "parquet", "features": list(features)}
    return {
        "feature_spec": features,
        "source_spec": {
            "train": [{**chunk, "files": list(FILES[:2])}],
            "test": [{**chunk, "files": list(FILES[2:])}],
        },
        "channel_spec": copy.deepcopy(CHANNELS),
        "metadata": {},
    }


def make_clicks(rows: int, seed: int) -> pa.Table:
    """Rows drawn at random."""
    random = np.random.default_rng(seed)
    columns = {"clicked": random.integers(0, 2, rows).astype(np.int8)}
    for name, cardinality in CARDINALITIES.items():
        columns[name] = random.integers(0, cardinality, rows).astype(np.int32)
    for name in NUMBERS:
        columns[name] = random.standard_normal(rows).astype(np.float32)
    return pa.table(columns)


def make_clicks_draft(base: dict[str, Any]) -> Draft:
    """Make the good dataset of a plan's base."""
    tables, writing = {}, {}
    for number, (name, rows) in enumerate(zip(FILES, base["sizes"]["rows"], strict=True)):
        tables[name] = make_clicks(rows, base["seed"] + number)
        writing[name] = {"row_group_size": max(1, base["sizes"]["group"]), "compression": "snappy"}
    return Draft(tables, writing, copy.copy(documents_of(clicks_spec)))


FORM = Form(
    "dlrm",
    {name: list(LARGEST) for name in FILES},
    LARGEST,
    [],
    ["clicked"],
    CHANNELS,
    make_clicks_draft,
)
