"""Changes to a directory of finished files: what is in them, what they are called, what is there.

Files are chosen by number among those that are there, in order of name, so that a change fits
every directory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..kinds import MutationKind, pick
from .byte_mutations import changed, drawn_change

ODD_VALUES: list[Any] = [
    *(None, -1, 0, 1, 2, 10**12, 2**63, 2**70, 1.5, True, False, "", "x", [], {}, [1], {"a": 1}),
    *("../../etc/passwd", "/etc/passwd", "x" * 3000, 1e308, "step-0000000001", "NaN"),
]
CONTENTS: dict[str, bytes] = {
    "an empty file": b"",
    "zeros": bytes(200),
    "brackets": b"[" * 200_000,
    "braces": b'{"a":' * 100_000,
    "a number": b"7",
    "null": b"null",
    "an empty object": b"{}",
    "not utf-8": b"\xff\xfe\x00{",
    "text": b"text\n",
}


def files_of(directory: Path) -> list[Path]:
    """All files, in order."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")


def change_content(
    directory: Path, number: int, change: str, at: int, count: int, value: int
) -> None:
    """Change one file's bytes."""
    path = _file(directory, number)
    if path is None:
        return
    content = bytearray(path.read_bytes())
    if content:
        changed(content, at % len(content), change, count, value)
        path.write_bytes(content)


def change_json(directory: Path, number: int, node: int, change: str, value: Any) -> None:
    """Change one node of one JSON file; the file stays JSON."""
    found = [path for path in files_of(directory) if path.suffix == ".json"]
    if not found:
        return
    path = found[number % len(found)]
    try:
        tree = json.loads(path.read_bytes())
        nodes = list(nodes_of(tree))
    except (ValueError, TypeError, RecursionError):
        return
    if not nodes:
        return
    holder, key = nodes[node % len(nodes)]
    if change == "remove":
        del holder[key]
    elif change == "add" and isinstance(holder[key], int | float):
        holder[key] += 1
    elif change == "add to" and isinstance(holder[key], dict):
        holder[key]["one more"] = value
    else:
        holder[key] = value
    path.write_text(json.dumps(tree))


def put_content(directory: Path, number: int, what: str) -> None:
    """Put other content in a file's place."""
    path = _file(directory, number)
    if path is not None:
        path.write_bytes(CONTENTS[what])


def put_thing(directory: Path, number: int, what: str) -> None:
    """Put something else than a file in a file's place, or nothing."""
    path = _file(directory, number)
    if path is None:
        return
    path.unlink()
    if what == "a directory":
        path.mkdir()
    elif what == "a link to nothing":
        path.symlink_to("nowhere")
    elif what == "a link to itself":
        path.symlink_to(path.name)


def exchange_files(directory: Path, number: int, other: int) -> None:
    """Exchange two files' contents."""
    one, two = _file(directory, number), _file(directory, other)
    if one is not None and two is not None:
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)


def rename_file(directory: Path, number: int, name: str) -> None:
    """Give a file another name in its directory."""
    path = _file(directory, number)
    if path is not None and not path.with_name(name).is_dir():
        path.replace(path.with_name(name))


def remove_directory(directory: Path, number: int) -> None:
    """Remove a directory below."""
    found = sorted(path for path in directory.rglob("*") if path.is_dir())
    if found:
        shutil.rmtree(found[number % len(found)])


def _file(directory: Path, number: int) -> Path | None:
    found = files_of(directory)
    return found[number % len(found)] if found else None


def nodes_of(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree: what holds it, and under which key."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from nodes_of(tree[key])


Random = np.random.Generator
Draw = Callable[[Random], dict[str, Any]]


def _with(draw: Draw) -> Draw:
    return lambda random: {"number": int(random.integers(1 << 16)), **draw(random)}


FILE_KINDS = [
    MutationKind("change content", change_content, _with(drawn_change), 4),
    MutationKind(
        "change JSON",
        change_json,
        _with(
            lambda r: {
                "node": int(r.integers(1 << 16)),
                "change": pick(r, ["remove", "replace", "replace", "add", "add to"]),
                "value": pick(r, ODD_VALUES),
            }
        ),
        5,
    ),
    MutationKind("put content", put_content, _with(lambda r: {"what": pick(r, list(CONTENTS))}), 2),
    MutationKind(
        "put in a file's place",
        put_thing,
        _with(
            lambda r: {
                "what": pick(r, ["nothing", "a directory", "a link to nothing", "a link to itself"])
            }
        ),
        2,
    ),
    MutationKind(
        "exchange files", exchange_files, _with(lambda r: {"other": int(r.integers(1 << 16))}), 1
    ),
    MutationKind(
        "rename a file",
        rename_file,
        _with(lambda r: {"name": pick(r, ["x", ".hidden", "manifest.json", "arrays.npz", "é\n"])}),
        1,
    ),
    MutationKind("remove a directory", remove_directory, _with(lambda r: {}), 1),
]
