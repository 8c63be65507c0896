"""Changes to a file of features: as a tree, as lines, as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..kinds import MutationKind, pick
from ..mutations.byte_mutations import changed, drawn_change
from ..mutations.document_mutations import LINES
from ..mutations.file_mutations import CONTENTS, nodes_of

VALUES: list[Any] = [
    *(None, -1, 0, 1, 2, 3, 10**12, 2**63, 1.5, True, False, "", "x", [], {}, [1], {"a": 1}),
    *("item", "user", "interaction", "number", "time", "vector", "list", "category", "Normalize"),
    *("FillMedian", "LogOp", "Clip", {"Clip": {"min_value": 5}}, {"Clip": {}}, "seconds", "days"),
    *("what", "who", "when", "clicked", "count", "target", [2, 1], [1, 2, 3], float("nan"), 1e308),
    *("label", "position", "what_trgt", "../x", "x" * 3000, "no\0name", "hour", ["hour", "hour"]),
]


def change_node(path: Path, node: int, change: str, value: Any) -> None:
    """Change one node of the file."""
    try:
        tree = yaml.safe_load(path.read_bytes())
        nodes = list(nodes_of(tree))
        holder, key = nodes[node % len(nodes)]
        if change == "remove":
            del holder[key]
        elif change == "rename" and isinstance(holder, dict):
            holder[str(value)] = holder.pop(key)
        elif change == "add" and isinstance(holder, dict):
            holder[str(value)] = value
        else:
            holder[key] = value
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
    except (yaml.YAMLError, OSError, LookupError, TypeError, ValueError, RecursionError):
        return


def change_line(path: Path, line: int, change: str, text: str) -> None:
    lines = path.read_bytes().split(b"\n")
    line %= len(lines)
    if change == "remove":
        del lines[line]
    elif change == "repeat":
        lines.insert(line, lines[line])
    else:
        lines.insert(line, text.encode())
    path.write_bytes(b"\n".join(lines))


def change_bytes(path: Path, change: str, at: int, count: int, value: int) -> None:
    content = bytearray(path.read_bytes())
    if content:
        changed(content, at % len(content), change, count, value)
        path.write_bytes(content)


def put_content(path: Path, what: str) -> None:
    path.write_bytes(CONTENTS[what])


Random = np.random.Generator
FEATURE_KINDS = [
    MutationKind(
        "change the features",
        change_node,
        lambda r: {
            "node": int(r.integers(1 << 16)),
            "change": pick(r, ["remove", "rename", "add", "replace", "replace", "replace"]),
            "value": pick(r, VALUES),
        },
        6,
    ),
    MutationKind(
        "change a line of the features",
        change_line,
        lambda r: {
            "line": int(r.integers(1 << 16)),
            "change": pick(r, ["remove", "repeat", "insert"]),
            "text": pick(r, LINES),
        },
        2,
    ),
    MutationKind("change bytes of the features", change_bytes, drawn_change, 2),
    MutationKind(
        "put in the features' place", put_content, lambda r: {"what": pick(r, list(CONTENTS))}, 0.5
    ),
]
