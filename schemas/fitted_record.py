"""Record of a log in a saved workflow, read from its JSON alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..foundation.exceptions import KeyPath, Problem, SpecError, describe
from .layout_names import WORKFLOW_FILE

NOTHING = type(None)
ANY = object()
"""In the place of a name: the entries have any names, and all have one shape."""
SAVED = {
    "format": int,
    "merlin_sim": str,
    "nvtabular": str,
    "input_schema": [dict],
    "operators": [{"operator": str, "config": dict, "learned": dict}],
    "nodes": [
        {
            "operator": int,
            "selector": (dict, NOTHING),
            "parents": [int],
            "dependencies": [(int, list)],
            "columns": [dict],
        }
    ],
    "files": {ANY: str},
}
"""What ``save_workflow`` writes, whatever the operators are."""
OF_HISTORIES = {
    "history": ({"longest": int, "times": str, "files": {ANY: str}}, NOTHING),
    "grown_from": ({"fingerprint": str, "sizes": {ANY: int}}, NOTHING),
}
"""What a workflow of behaviour also has."""
CONFIG = {
    "columns": dict,
    "features": (dict, NOTHING),
    "rules": dict,
    "times": ([(str, NOTHING)], NOTHING),
    "reads_raw": bool,
}
LEARNED = {
    "items": str,
    "prior": float,
    "counted_until": (float, NOTHING),
    "sizes": {ANY: int},
    "shifts": {ANY: int},
    "counts_events": bool,
    "changing_items": [str],
}
"""The parts of GroupHistories."""
IN_WORDS = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NOTHING: "nothing",
}

HISTORIES = "GroupHistories"
"""The operator that a workflow of behaviour ends in."""
PASSING = (
    "Categorify", "FillAsOf", "nvtabular.Categorify", "nvtabular.ConcatColumns",
    "nvtabular.SelectionOp", "nvtabular.SubtractionOp",
)  # fmt: skip
"""Operators that make neither a number of a number, nor a bucket."""
Record = Mapping[str, Any]


def require_shape(file: Path | str, value: Any, shape: Any, *path: str | int) -> None:
    """Refuse a part of a JSON file that has another shape.

    Args:
        file: The file, for the message.
        value: What stands there.
        shape: A type; a list with the shape of each entry; a mapping of names to shapes, all of
            which have to be there, or of ``ANY``; or a tuple of these.
        path: Where it stands.

    Raises:
        SpecError: With every key that is not as expected.
    """
    found = [
        Problem(str(file), where, expected, received)
        for where, expected, received in misfits(value, shape, path)
    ]
    if found:
        raise SpecError(file, found)


def misfits(value: Any, shape: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str, str]]:
    """Give what is not as expected: where, what was expected, what stands there."""
    of = _kinds(shape).get(type(value))
    parts: dict[Any, Any] = {}
    if of is None:
        yield path, _in_words(shape), describe(value)
    elif isinstance(of, list):
        parts = dict.fromkeys(range(len(value)), of[0])
    elif isinstance(of, dict):
        parts = dict.fromkeys(value, of[ANY]) if ANY in of else of
        for name in [name for name in value if name not in parts]:
            yield (*path, name), f"one of the keys {', '.join(parts)}", describe(value[name])
    for name, part in parts.items():
        if isinstance(of, dict) and name not in value:
            yield (*path, name), _in_words(part), "no such key"
        else:
            yield from misfits(value[name], part, (*path, name))


def _kinds(shape: Any) -> dict[type, Any]:
    shapes = shape if isinstance(shape, tuple) else (shape,)
    return {one if isinstance(one, type) else type(one): one for one in shapes}


def _in_words(shape: Any) -> str:
    return " or ".join(IN_WORDS[kind] for kind in _kinds(shape))


def histories_record(document: Any) -> Record | None:
    """The operator that makes histories, as it was saved; None where there is none."""
    operators = document.get("operators") if isinstance(document, dict) else None
    for record in operators if isinstance(operators, list) else ():
        if isinstance(record, dict) and record.get("operator") == HISTORIES:
            return record
    return None


def number_operators(document: Record) -> dict[str, list[int]]:
    """By number of the log, which operators it goes through, the first to the last."""
    record = histories_record(document)
    stated = (record["config"]["features"] if record else None) or {"features": {}}
    return {
        name: _operators_before(document, document["nodes"][-1], name)
        for name, feature in stated["features"].items()
        if feature["type"] == "number"
    }


def number_records(document: Record) -> dict[str, list[Record]]:
    """By number of the log, what is saved of the operators that it goes through."""
    return {
        name: [document["operators"][number] for number in numbers]
        for name, numbers in number_operators(document).items()
    }


def _operators_before(document: Record, node: Record, name: str) -> list[int]:
    for number in nodes_before(node):
        parent = document["nodes"][number]
        if name in (column["name"] for column in parent["columns"]):
            before, own = _operators_before(document, parent, name), parent["operator"]
            passes = document["operators"][own]["operator"] in PASSING
            return before if passes else [*before, own]
    return []


def nodes_before(node: Record) -> list[int]:
    """The nodes whose columns a node reads."""
    return [*node["parents"], *_flat(node["dependencies"])]


def _flat(numbers: list[Any]) -> list[int]:
    flat: list[int] = []
    for one in numbers:
        flat += _flat(one) if isinstance(one, list) else [one]
    return flat


def fitted_on(directory: Path) -> str | None:
    """Return the rows that a dataset's ids were fitted on, ``train`` or ``all``; None: unknown."""
    try:
        document = json.loads((directory / WORKFLOW_FILE).read_text(encoding="utf-8"))
        record = histories_record(document)
        rules = (document if record is None else record["config"])["rules"]  # clicks have no record
        return str(rules["fit_on"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def fitted_features(document: Any) -> str | None:
    """How numbers become buckets and crosses, as a text; None where there are no features."""
    record = histories_record(document)
    if record is None or not record["config"]["features"]:
        return None
    found = {
        "stated": record["config"]["features"],
        "operators": number_records(document),
        "prior": record["learned"]["prior"],
        "counted_until": record["learned"]["counted_until"],
    }
    return json.dumps(found, sort_keys=True)
