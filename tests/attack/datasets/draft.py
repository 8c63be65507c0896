"""A small good dataset, made in memory, changed there, then written."""

from __future__ import annotations

import copy
import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ITEMS, CATEGORIES, USERS, LONGEST = 60, 7, 50, 9
SIZES = {
    "label": None,
    "who": USERS,
    "where": 5,
    "thing": ITEMS,
    "kind": CATEGORIES,
    "thing_seen": ITEMS,
    "kind_seen": CATEGORIES,
    "thing_unseen": ITEMS,
    "kind_unseen": CATEGORIES,
}
"""Column -> the largest id of its table."""
CHANNELS = {
    "label": ["label"],
    "user_features": ["who", "where"],
    "target_item_features": ["thing", "kind"],
    "positive_history": ["thing_seen", "kind_seen"],
    "negative_history": ["thing_unseen", "kind_unseen"],
}
SCALARS = [name for name in SIZES if "seen" not in name]
LISTS = [name for name in SIZES if "seen" in name]
FILES = ("train/part.0.parquet", "train/part.1.parquet", "test/part.0.parquet")
DOCUMENTS = ("feature_spec.yaml", "schema.pbtxt", "metadata.json")


@dataclass
class Draft:
    """A dataset directory that is not written yet."""

    tables: dict[str, pa.Table]
    writing: dict[str, dict[str, Any]]
    """Each file's options of arrow's writer."""
    documents: dict[str, bytes | None]
    """Each description's bytes; None where something else is to stand in its place."""
    links: dict[str, str] = field(default_factory=dict)
    """Names that are links, and where they lead; an empty target makes a directory."""

    def write(self, directory: Path) -> None:
        for name, table in self.tables.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path, **self.writing.get(name, {}))
        for name, content in self.documents.items():
            if content is not None:
                (directory / name).write_bytes(content)
        for name, target in self.links.items():
            (directory / name).unlink(missing_ok=True)
            if target:
                (directory / name).symlink_to(target)
            else:
                (directory / name).mkdir()


@dataclass(frozen=True)
class Form:
    """What the good datasets of one kind have in common: what there is to be changed."""

    model: str
    """A family of models that reads them."""
    columns: dict[str, list[str]]
    """File -> its columns."""
    largest: dict[str, int | None]
    """Column of the spec -> its largest id; None for a column without ids."""
    lists: list[str]
    """Columns of files that hold lists."""
    labels: list[str]
    channels: dict[str, list[str]]
    make: Callable[[dict[str, Any]], Draft]
    """Makes the good dataset of a plan's base."""
    most_rows: int = 120

    @property
    def files(self) -> list[str]:
        return list(self.columns)

    @property
    def scalars(self) -> list[str]:
        names = dict.fromkeys(name for names in self.columns.values() for name in names)
        return [name for name in names if name not in self.lists]

    def base_of(self, random: np.random.Generator) -> dict[str, Any]:
        """Draw the options of a good dataset."""
        rows = [int(random.integers(1, self.most_rows)) for _ in self.files]
        group = int(random.integers(1, 130))
        return {
            "seed": int(random.integers(1 << 30)),
            "padded": bool(random.random() < 0.25),
            "sizes": {"rows": rows, "group": group},
        }


def make_draft(base: dict[str, Any]) -> Draft:
    """Make the good dataset of a plan's base."""
    padded = bool(base["padded"])
    tables, writing = {}, {}
    for number, (name, rows) in enumerate(zip(FILES, base["sizes"]["rows"], strict=True)):
        tables[name] = make_table(rows, base["seed"] + number, padded)
        writing[name] = {"row_group_size": max(1, base["sizes"]["group"]), "compression": "snappy"}
    return Draft(tables, writing, copy.copy(documents_of(plain_spec)))


def make_table(rows: int, seed: int, padded: bool) -> pa.Table:
    """Rows drawn at random: histories of unequal lengths, the positive ones' equal."""
    random = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {}
    lengths = {name: random.integers(0, LONGEST + 1, rows) for name in ("seen", "unseen")}
    for name, largest in SIZES.items():
        if largest is None:
            columns[name] = pa.array(random.integers(0, 2, rows).astype(np.float32))
        elif name in SCALARS:
            columns[name] = pa.array(random.integers(1, largest + 1, rows))
        else:
            kind = name.rsplit("_", 1)[1]
            lists = [random.integers(1, largest + 1, n).tolist() for n in lengths[kind]]
            if padded:
                lists = [[0] * (LONGEST - len(values)) + values for values in lists]
            columns[name] = pa.array(lists, pa.list_(pa.int64()))
    return pa.table(columns)


def plain_spec() -> dict[str, Any]:
    """The spec as YAML holds it."""
    features: dict[str, Any] = {}
    for name, largest in SIZES.items():
        feature: dict[str, Any] = {"dtype": "float32" if largest is None else "int64"}
        if largest is not None:
            feature["cardinality"] = largest
        if name in LISTS:
            feature["dimensions"] = [LONGEST]
        features[name] = feature
    train = [{"type": "parquet", "features": list(SIZES), "files": list(FILES[:2])}]
    test = [{"type": "parquet", "features": list(SIZES), "files": list(FILES[2:])}]
    return {
        "feature_spec": features,
        "source_spec": {"train": train, "test": test},
        "channel_spec": CHANNELS,
        "metadata": {},
    }


@functools.cache
def documents_of(spec: Callable[[], dict[str, Any]]) -> dict[str, bytes | None]:
    """The descriptions as the product writes them: their form is not what is attacked here."""
    from merlin_sim.schemas.dataset import write_documents
    from merlin_sim.schemas.specs.spec_file import spec_from_plain

    with tempfile.TemporaryDirectory() as directory:
        write_documents(directory, spec_from_plain(spec()))
        return {name: (Path(directory) / name).read_bytes() for name in DOCUMENTS}


SAMPLES = Form(
    "sim",
    {name: list(SIZES) for name in FILES},
    SIZES,
    LISTS,
    ["label"],
    CHANNELS,
    make_draft,
)
