"""Changes to how arrow writes a file: codecs, page versions, encodings, sizes, statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..datasets.draft import Draft, Form
from ..kinds import MutationKind, pick

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
        wanted = {**wanted, "column_encoding": encodings, "use_dictionary": False}
    if "column_encoding" in wanted:
        wanted["use_dictionary"] = False
    draft.writing[file] = wanted


def writer_kinds(form: Form) -> list[MutationKind]:
    """The ways to write files of one form."""

    def options(random: np.random.Generator) -> dict[str, Any]:
        names = random.choice(list(CHOICES), int(random.integers(1, 6)), replace=False)
        choices = {str(name): pick(random, CHOICES[name]) for name in names}
        return {"file": pick(random, form.files), **choices}

    def plain(random: np.random.Generator) -> dict[str, Any]:
        """Pages in which every byte is a value's."""
        return {"file": pick(random, form.files), "compression": "none", "use_dictionary": False}

    def encodings(random: np.random.Generator) -> dict[str, Any]:
        file = pick(random, form.files)
        columns = [name for name in form.columns[file] if form.largest.get(name, 1) is not None]
        chosen = random.choice(columns, 2, replace=False)
        paths = [f"{name}.list.element" if name in form.lists else str(name) for name in chosen]
        return {"file": file, "encodings": {path: pick(random, ENCODINGS) for path in paths}}

    return [
        MutationKind("write with", write_with, options, 5),
        MutationKind("write plainly", write_with, plain, 3),
        MutationKind("write with encodings", write_with, encodings, 1),
    ]
