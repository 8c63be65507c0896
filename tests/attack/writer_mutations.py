"""Changes to how arrow writes a file: codecs, page versions, encodings, sizes, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draft import FILES, LISTS, SCALARS, Draft
from .kinds import MutationKind, pick

CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
CHOICES: dict[str, list[Any]] = {
    "compression": CODECS,
    "data_page_version": ["1.0", "2.0"],
    "version": ["1.0", "2.4", "2.6"],
    "use_dictionary": [True, False, ["thing", "who"], ["thing_seen.list.element"]],
    "write_statistics": [True, False, ["who"]],
    "row_group_size": [1, 2, 3, 7, 16, 64, 1000],
    "data_page_size": [1, 10, 100, 1000],
    "dictionary_pagesize_limit": [1, 16, 100],
    "write_batch_size": [1, 3, 10],
    "use_compliant_nested_type": [True, False],
    "store_schema": [True, False],
    "write_page_index": [True, False],
}
ENCODINGS = ["PLAIN", "DELTA_BINARY_PACKED"]


def write_with(draft: Draft, file: str, **options: Any) -> None:
    """Write one file with other options."""
    encodings = options.pop("encodings", None)
    wanted = {**draft.writing.get(file, {}), **options}
    if encodings:
        known = {_path(name): kind for name, kind in encodings.items()}
        wanted = {**wanted, "column_encoding": known, "use_dictionary": False}
    if "column_encoding" in wanted:
        wanted["use_dictionary"] = False
    draft.writing[file] = wanted


def _path(column: str) -> str:
    return f"{column}.list.element" if column in LISTS else column


def _options(random: np.random.Generator) -> dict[str, Any]:
    names = random.choice(list(CHOICES), int(random.integers(1, 6)), replace=False)
    return {"file": pick(random, FILES), **{str(n): pick(random, CHOICES[n]) for n in names}}


def _plain(random: np.random.Generator) -> dict[str, Any]:
    """Pages in which every byte is a value's."""
    return {"file": pick(random, FILES), "compression": "none", "use_dictionary": False}


def _encodings(random: np.random.Generator) -> dict[str, Any]:
    columns = [name for name in (*SCALARS, *LISTS) if name != "label"]
    chosen = random.choice(columns, 2, replace=False)
    return {
        "file": pick(random, FILES),
        "encodings": {str(name): pick(random, ENCODINGS) for name in chosen},
    }


WRITERS = [
    MutationKind("write with", write_with, _options, 5),
    MutationKind("write plainly", write_with, _plain, 3),
    MutationKind("write with encodings", write_with, _encodings, 1),
]
