"""A small good dataset with one row per user, and the changes that only such a dataset has."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from ..kinds import MutationKind, pick
from .draft import CHANNELS, SIZES, Draft, Form, documents_of, plain_spec

USERS, ITEMS = 5000, 60
LARGEST = {**SIZES, "who": USERS}
FILES = ("users/part.0.parquet", "users/part.1.parquet")
TABLE = "categories/thing.parquet"
POSITIONS = {"train": ["train_begin", "train_end"], "test": ["test_begin", "test_end"]}
USER_COLUMNS = ["who", "where", *POSITIONS["train"], *POSITIONS["test"], "thing"]
ITEM_COLUMNS = ["id", "count", "kind"]


def users_spec() -> dict[str, Any]:
    """The spec as YAML holds it."""
    spec = plain_spec()
    spec["feature_spec"]["who"]["cardinality"] = USERS
    for chunks in spec["source_spec"].values():
        chunks[0] |= {"type": "users", "files": list(FILES)}
    spec["metadata"]["users"] = {
        "history": "thing",
        "positions": copy.deepcopy(POSITIONS),
        "item_table": TABLE,
        "item_features": ["kind"],
        "negatives": "popularity",
        "seed": 99,
    }
    return spec


def make_users_draft(base: dict[str, Any]) -> Draft:
    """Make the good dataset of a plan's base."""
    tables = {TABLE: make_items(base["seed"])}
    for number, (name, rows) in enumerate(zip(FILES, base["sizes"]["rows"], strict=False)):
        tables[name] = make_users(rows, base["seed"] + number)
    options = {"row_group_size": max(1, base["sizes"]["group"]), "compression": "snappy"}
    return Draft(
        tables, {name: dict(options) for name in tables}, copy.copy(documents_of(users_spec))
    )


def make_users(rows: int, seed: int, longest: int = 30) -> pa.Table:
    """Users with histories of any length; some have no sample, the last of a history is test."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, longest + 1, rows)
    lengths[random.random(rows) < 0.15] = 0
    last = np.maximum(lengths - 1, 0)
    first = np.minimum(random.integers(0, 4, rows), last)
    items = [random.integers(1, ITEMS + 1, length) for length in lengths]
    return pa.table(
        {
            "who": random.permutation(USERS)[:rows] + 1,
            "where": random.integers(1, 6, rows),
            "train_begin": first,
            "train_end": last,
            "test_begin": last,
            "test_end": lengths,
            "thing": pa.array(items, pa.list_(pa.int32())),
        }
    )


def make_items(seed: int) -> pa.Table:
    """How often each item was taken, and of which kind it is; in any order."""
    random = np.random.default_rng([seed, ITEMS])
    order = random.permutation(ITEMS)
    return pa.table(
        {
            "id": order + 1,
            "count": random.integers(0, 20, ITEMS),
            "kind": random.integers(1, LARGEST["kind"] + 1, ITEMS),
        }
    )


def change_layout(draft: Draft, key: str, value: Any) -> None:
    """Say otherwise how samples are made."""
    try:
        tree = yaml.safe_load(draft.documents["feature_spec.yaml"] or b"")
        stated = tree["metadata"]["users"]
        holder = stated["positions"] if key in POSITIONS else stated
        holder[key] = value
    except (yaml.YAMLError, LookupError, TypeError, RecursionError):
        return
    draft.documents["feature_spec.yaml"] = yaml.safe_dump(tree, sort_keys=False).encode()


ODD_LAYOUTS: dict[str, list[Any]] = {
    "history": ["thing.list.element", "who", "", None, 3, "kind", "thing\0x"],
    "train": [["test_begin", "test_end"], ["train_end", "train_begin"], ["who", "where"], [], "x"],
    "test": [["train_begin", "train_end"], ["test_begin"], ["test_begin", "thing"], None],
    "item_table": [FILES[0], "../d/" + TABLE, f"./{TABLE}", "/etc/passwd", "", None, "categories"],
    "item_features": [[], ["count"], ["id"], ["kind", "kind"], "kind", [None], ["who"]],
    "negatives": ["uniform", "uniform", "Uniform", "", None, 1],
    "seed": [0, 1, 2**63 - 1, 2**63, -1, 1.5, True, "99", None],
}


def layout_kinds() -> list[MutationKind]:
    """The changes to what the spec says of users."""

    def draw(random: np.random.Generator) -> dict[str, Any]:
        key = pick(random, list(ODD_LAYOUTS))
        return {"key": key, "value": pick(random, ODD_LAYOUTS[key])}

    change: Callable[..., None] = change_layout
    return [MutationKind("say of the users", change, draw)]


FORM = Form(
    "sim",
    {**dict.fromkeys(FILES, USER_COLUMNS), TABLE: ITEM_COLUMNS},
    LARGEST,
    ["thing"],
    [],
    CHANNELS,
    make_users_draft,
    most_rows=40,
)
