"""Changes to what a next day reads of an old one, put under new digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..kinds import MutationKind, pick
from ..mutations.file_mutations import ODD_VALUES, nodes_of

WORKFLOW = "workflow.json"


def sign(directory: Path) -> None:
    """Write the digests anew, as whoever changes the files on purpose would."""
    from merlin_sim.foundation.own_digest import DIGEST, with_own_digest

    path = directory / WORKFLOW
    try:
        document = json.loads(path.read_bytes())
        document.pop(DIGEST, None)
        for entry in document["categories"].values():
            entry["sha256"] = _digest(directory / entry["file"])
        files = document["history"]["files"]
        for name in files:
            files[name] = _digest(directory / "history" / name)
        path.write_text(with_own_digest(document))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def change_workflow(directory: Path, node: int, change: str, value: Any) -> None:
    """Change one node of workflow.json."""
    from merlin_sim.foundation.own_digest import DIGEST, with_own_digest

    path = directory / WORKFLOW
    try:
        document = json.loads(path.read_bytes())
        document.pop(DIGEST, None)
        nodes = list(nodes_of(document))
        holder, key = nodes[node % len(nodes)]
        if change == "remove":
            del holder[key]
        elif change == "replace":
            holder[key] = value
        elif isinstance(holder, dict):
            holder["more"] = value
        else:
            holder.append(value)
        path.write_text(with_own_digest(document))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return


def change_table(directory: Path, which: int, column: int, change: str, kind: str) -> None:
    """Change a column of a file of the old day's histories or vocabularies."""
    paths = sorted(path for path in directory.glob(f"{kind}/*.parquet") if path.is_file())
    if not paths:
        return
    path = paths[which % len(paths)]
    try:
        table = pq.read_table(path)
        pq.write_table(_changed(table, column % max(1, table.num_columns), change), path)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError):
        return
    sign(directory)


def _changed(table: pa.Table, column: int, change: str) -> pa.Table:
    name = table.column_names[column]
    cells = table[name].to_pylist()
    if change == "drop":
        return table.drop_columns([name])
    if change == "no rows":
        return table.slice(0, 0)
    if change == "rows twice":
        return pa.concat_tables([table, table])
    if change == "rows turned":
        return table.take(pa.array(np.arange(table.num_rows)[::-1]))
    if change == "rename":
        return table.rename_columns([n + "x" * (n == name) for n in table.column_names])
    if change == "as text":
        made = pa.array([None if cell is None else str(cell) for cell in cells])
        return table.set_column(column, name, made)
    if change == "nothing":
        cells[len(cells) // 2] = None
    elif change == "negative":
        cells[len(cells) // 2] = -cells[len(cells) // 2]
    elif change == "huge":
        cells[len(cells) // 2] = type(cells[0])(2**62)
    elif change == "the first again":
        cells[-1] = cells[0]
    return table.set_column(column, name, pa.array(cells, table.schema.field(name).type))


TABLE_CHANGES = [
    *("drop", "no rows", "rows twice", "rows turned", "rename", "as text", "nothing"),
    *("negative", "huge", "the first again"),
]
Random = np.random.Generator


def _table(kind: str) -> Callable[[Random], dict[str, Any]]:
    return lambda r: {
        "which": int(r.integers(1 << 16)),
        "column": int(r.integers(1 << 16)),
        "change": pick(r, TABLE_CHANGES),
        "kind": kind,
    }


SIGNED_KINDS = [
    MutationKind(
        "change the workflow",
        change_workflow,
        lambda r: {
            "node": int(r.integers(1 << 16)),
            "change": pick(r, ["remove", "replace", "replace", "add"]),
            "value": pick(r, ODD_VALUES),
        },
        3,
    ),
    MutationKind("change the histories", change_table, _table("history"), 2),
    MutationKind("change the vocabularies", change_table, _table("categories"), 2),
]
"""What is changed under a digest that fits: wrong is a traceback, and a refusal without a file."""
