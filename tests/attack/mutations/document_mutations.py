"""Changes to the descriptions of a dataset: as trees, as lines, as bytes, as files."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import yaml

from ..datasets.draft import DOCUMENTS, Draft, Form
from ..kinds import MutationKind, pick
from .byte_mutations import changed, drawn_change

TREES = ("feature_spec.yaml", "metadata.json")
VALUES: list[Any] = [
    *(None, -1, 0, 1, 2, 5, 7, 61, 2**31, 2**63, 2**70, 1.5, True, False, "", "60", "auto", "who"),
    *([], {}, [[]], ["who"], {"who": 1}, "train", "int32", "uint8", "float64", "string", "Int64"),
    *("x" * 5000, "\u2028", "-1", "1e3", "parquet", "csv", 1e308, "nul\0byte"),
]
PATHS = [
    *("./{0}", "train/../{0}", "{0}/", "//{0}", "../d/{0}", "/etc/passwd", "", ".", "train"),
    *("{1}", "{2}", "{3}", "train/missing.parquet", "~/{0}", "./{1}", "test/../{1}", "././{2}"),
]
"""{0} is the file that is named already, the others are the form's."""
LINES = ["", "  ", "\t", "}", "{", "- x", "? x", "&a [*a]", "<<: x", "!!python/object:os.system x"]


def change_node(draft: Draft, document: str, node: int, change: str, value: Any) -> None:
    """Change one node of a YAML or JSON document, counted from the root in reading order."""

    def edit(tree: Any) -> None:
        nodes = list(_nodes(tree))
        if not nodes:
            return
        holder, key = nodes[node % len(nodes)]
        if change == "remove":
            del holder[key]
        elif change == "replace":
            holder[key] = value
        elif change == "rename" and isinstance(holder, dict):
            items = list(holder.items())
            holder.clear()
            holder.update({(str(value) if name == key else name): held for name, held in items})
        elif change == "repeat" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif change == "add" and isinstance(holder[key], int | float):
            holder[key] += 1

    _edit(draft, document, edit)


def change_path(draft: Draft, place: int, path: str) -> None:
    """Name a data file in another way, or another file."""

    def edit(tree: Any) -> None:
        lists = [c["files"] for chunks in tree["source_spec"].values() for c in chunks]
        places = [(names, i) for names in lists for i in range(len(names))]
        names, i = places[place % len(places)]
        names[i] = path.format(names[i])

    _edit(draft, "feature_spec.yaml", edit)


def add_file(draft: Draft, mapping: str, path: str) -> None:
    """Name one more data file."""

    def edit(tree: Any) -> None:
        names = tree["source_spec"][mapping][0]["files"]
        names.append(path.format(names[0]))

    _edit(draft, "feature_spec.yaml", edit)


def turn_files(draft: Draft, mapping: str) -> None:
    """Name a mapping's data files in the opposite order."""

    def edit(tree: Any) -> None:
        tree["source_spec"][mapping][0]["files"].reverse()

    _edit(draft, "feature_spec.yaml", edit)


def exchange(draft: Draft, one: str, other: str) -> None:
    """Exchange two channels' features."""

    def edit(tree: Any) -> None:
        channels = tree["channel_spec"]
        channels[one], channels[other] = channels[other], channels[one]

    _edit(draft, "feature_spec.yaml", edit)


def also_in(draft: Draft, channel: str, feature: str) -> None:
    """Let a feature stand in one more channel."""

    def edit(tree: Any) -> None:
        tree["channel_spec"][channel].append(feature)

    _edit(draft, "feature_spec.yaml", edit)


def set_cardinality(draft: Draft, document: str, column: str, value: int) -> None:
    """Let one description state another cardinality than the others."""
    if document == "schema.pbtxt":
        lines = _lines(draft, document)
        for place in _fields_of(lines, column):
            if lines[place].strip().startswith("max:"):
                lines[place] = f"    max: {value}"
                break
        _set_lines(draft, document, lines)
        return

    def edit(tree: Any) -> None:
        if document == "feature_spec.yaml":
            tree["feature_spec"][column]["cardinality"] = value
        else:
            for entry in tree["cardinalities"]:
                if entry["name"] == column:
                    entry["value"] = value

    _edit(draft, document, edit)


def change_line(draft: Draft, document: str, line: int, change: str, text: str) -> None:
    """Change one line of a description."""
    lines = _lines(draft, document)
    if not lines:
        return
    line %= len(lines)
    if change == "remove":
        del lines[line]
    elif change == "repeat":
        lines.insert(line, lines[line])
    elif change == "swap":
        other = (line + 1) % len(lines)
        lines[line], lines[other] = lines[other], lines[line]
    else:
        lines.insert(line, text)
    _set_lines(draft, document, lines)


def remove_lines_like(draft: Draft, document: str, start: str, which: int) -> None:
    """Remove one of the lines that begin with some word."""
    lines = _lines(draft, document)
    places = [i for i, line in enumerate(lines) if line.strip().startswith(start)]
    if places:
        del lines[places[which % len(places)]]
        _set_lines(draft, document, lines)


def change_bytes(draft: Draft, document: str, change: str, at: int, count: int, value: int) -> None:
    """Change a description's bytes."""
    content = bytearray(draft.documents.get(document) or b"")
    if content:
        changed(content, at % len(content), change, count, value)
        draft.documents[document] = bytes(content)


def put_in_place(draft: Draft, document: str, what: str) -> None:
    """Put something else in a description's place."""
    contents: dict[str, bytes | None] = {
        "nothing": None,
        "an empty file": b"",
        "spaces": b" \n \n",
        "zeros": bytes(100),
        "brackets": b"[" * 200_000,
        "braces": b'{"a":' * 100_000,
        "nested blocks": b"feature { " * 50_000,
        "a scalar": b"7\n",
        "a text": b"text\n",
        "not utf-8": b"\xff\xfe\x00x\n",
        "a byte order mark": b"\xef\xbb\xbf" + (draft.documents.get(document) or b""),
        "other line ends": (draft.documents.get(document) or b"").replace(b"\n", b"\r\n"),
        "aliases": b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b]\nd: &d [*d]\n",
        "two documents": (draft.documents.get(document) or b"") + b"\n---\n{}\n",
        "itself twice": (draft.documents.get(document) or b"") * 2,
    }
    links = {"a directory": "", "a link to nothing": "nowhere", "a link to itself": document}
    if what in links:
        draft.documents[document] = None
        draft.links[document] = links[what]
    else:
        draft.documents[document] = contents[what]


IN_PLACE = [
    *("nothing", "an empty file", "spaces", "zeros", "brackets", "braces", "nested blocks"),
    *("a scalar", "a text", "not utf-8", "a byte order mark", "other line ends", "aliases"),
    *("two documents", "itself twice", "a directory", "a link to nothing", "a link to itself"),
]


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(tree) if isinstance(tree, dict) else range(len(tree))
    for key in keys:
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _nodes(tree[key])


def _edit(draft: Draft, document: str, edit: Callable[[Any], None]) -> None:
    """Change a document as a tree, if it is still one; what an earlier change took is left."""
    content = draft.documents.get(document)
    if content is None:
        return
    try:
        tree = yaml.safe_load(content)
        edit(tree)
    except (yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        return
    text = json.dumps(tree) if document.endswith(".json") else yaml.safe_dump(tree, sort_keys=False)
    draft.documents[document] = text.encode("utf-8", "surrogatepass")


def _lines(draft: Draft, document: str) -> list[str]:
    content = draft.documents.get(document) or b""
    return content.decode("utf-8", "surrogateescape").splitlines()


def _set_lines(draft: Draft, document: str, lines: list[str]) -> None:
    text = "\n".join(lines) + "\n"
    draft.documents[document] = text.encode("utf-8", "surrogateescape")


def _fields_of(lines: list[str], column: str) -> Iterator[int]:
    inside = False
    for place, line in enumerate(lines):
        if line.startswith("feature"):
            inside = False
        inside = inside or line.strip() == f'name: "{column}"'
        if inside:
            yield place


Random = np.random.Generator
STARTS = ["max:", "min:", "tag:", "name:", "type:", "int_domain", "is_categorical", "value_count"]


def document_kinds(form: Form) -> list[MutationKind]:
    """The changes to the descriptions of datasets of one form."""
    return [*_of_meaning(form), *_of_text()]


def _of_meaning(form: Form) -> list[MutationKind]:
    """Changes that leave a document that can be read."""
    channels, features = list(form.channels), list(form.largest)
    paths = [path.format("{0}", *form.files) for path in PATHS]
    categorical = [name for name, largest in form.largest.items() if largest is not None]
    return [
        MutationKind(
            "change a node",
            change_node,
            lambda r: {
                "document": pick(r, TREES),
                "node": int(r.integers(1 << 20)),
                "change": pick(r, ["remove", "replace", "replace", "rename", "repeat", "add"]),
                "value": pick(r, VALUES),
            },
            6,
        ),
        MutationKind(
            "name a file",
            change_path,
            lambda r: {"place": int(r.integers(9)), "path": pick(r, paths)},
        ),
        MutationKind(
            "add a file",
            add_file,
            lambda r: {"mapping": pick(r, ["train", "test"]), "path": pick(r, paths)},
        ),
        MutationKind("turn files", turn_files, lambda r: {"mapping": pick(r, ["train", "test"])}),
        MutationKind(
            "exchange channels",
            exchange,
            lambda r: {"one": pick(r, channels), "other": pick(r, channels)},
        ),
        MutationKind(
            "put a feature also in",
            also_in,
            lambda r: {"channel": pick(r, channels), "feature": pick(r, features)},
        ),
        MutationKind(
            "state a cardinality",
            set_cardinality,
            lambda r: {
                "document": pick(r, DOCUMENTS),
                "column": pick(r, categorical),
                "value": pick(r, [1, 4, 6, 8, 59, 61, 10**6, 2**31 - 1, 2**31, 2**62]),
            },
            2,
        ),
    ]


def _of_text() -> list[MutationKind]:
    """Changes to lines and bytes, whatever they say."""
    return [
        MutationKind(
            "change a line",
            change_line,
            lambda r: {
                "document": pick(r, DOCUMENTS),
                "line": int(r.integers(1 << 20)),
                "change": pick(r, ["remove", "repeat", "swap", "insert"]),
                "text": pick(r, LINES),
            },
            4,
        ),
        MutationKind(
            "remove a line like",
            remove_lines_like,
            lambda r: {
                "document": pick(r, DOCUMENTS),
                "start": pick(r, STARTS),
                "which": int(r.integers(1 << 20)),
            },
            3,
        ),
        MutationKind(
            "change bytes",
            change_bytes,
            lambda r: {"document": pick(r, DOCUMENTS), **drawn_change(r)},
            3,
        ),
        MutationKind(
            "put in place",
            put_in_place,
            lambda r: {"document": pick(r, DOCUMENTS), "what": pick(r, IN_PLACE)},
            2,
        ),
    ]
