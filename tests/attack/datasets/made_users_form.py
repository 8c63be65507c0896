"""A small good dataset with one row per user as `preprocess --layout users` makes it.

`transcode` makes samples of such a dataset alone: it writes the files that `preprocess` would have.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from ..logs.raw_logs import NAMES
from ..serving.good_servable import good_servable
from .draft import Draft, Form

USER, ITEM, KIND = NAMES["user"], NAMES["item"], NAMES["kind"]
USERS_FILE, ITEMS_FILE = "users/part.0.parquet", f"categories/{ITEM}.parquet"
POSITIONS = ["train_begin", "train_end", "test_begin", "test_end"]
COLUMNS = {
    USERS_FILE: [USER, *POSITIONS, ITEM],
    ITEMS_FILE: ["id", "count", KIND],
}
TABLES = [*COLUMNS, f"categories/{USER}.parquet", f"categories/{KIND}.parquet"]
DOCUMENTS = ["feature_spec.yaml", "schema.pbtxt", "metadata.json", "workflow.json"]


def make_made_users(base: dict[str, Any]) -> Draft:
    """Take the good dataset into memory."""
    place = good_servable() / "users dataset"
    tables = {name: pq.read_table(place / name) for name in TABLES}
    options = {"row_group_size": max(1, base["sizes"]["group"] // 10), "compression": "snappy"}
    documents: dict[str, bytes | None] = {name: (place / name).read_bytes() for name in DOCUMENTS}
    return Draft(tables, {name: dict(options) for name in tables}, documents)


FORM = Form(
    "sim",
    COLUMNS,
    {USER: 12, ITEM: 12, KIND: 3},
    [ITEM],
    [],
    {},
    make_made_users,
)
