"""What a saved workflow says of a log of behaviour, read from its JSON alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

HISTORIES = "GroupHistories"
"""The operator that a workflow of behaviour ends in."""
PASSING = (
    "Categorify", "FillAsOf", "nvtabular.ConcatColumns", "nvtabular.SelectionOp",
    "nvtabular.SubtractionOp",
)  # fmt: skip
"""Operators that make neither a number of a number, nor a bucket."""
Record = Mapping[str, Any]


def histories_record(document: Any) -> Record | None:
    """The operator that makes histories, as it was saved; None where there is none."""
    operators = document.get("operators") if isinstance(document, dict) else None
    for record in operators if isinstance(operators, list) else ():
        if isinstance(record, dict) and record.get("operator") == HISTORIES:
            return record
    return None


def number_records(document: Record) -> dict[str, list[Record]]:
    """By number of the log, the operators that it goes through, the first to the last."""
    record = histories_record(document)
    stated = (record["config"]["features"] if record else None) or {"features": {}}
    return {
        name: _operators_before(document, document["nodes"][-1], name)
        for name, feature in stated["features"].items()
        if feature["type"] == "number"
    }


def _operators_before(document: Record, node: Record, name: str) -> list[Record]:
    for number in [*node["parents"], *_flat(node["dependencies"])]:
        parent = document["nodes"][number]
        if name in (column["name"] for column in parent["columns"]):
            before = _operators_before(document, parent, name)
            operator = document["operators"][parent["operator"]]
            return before if operator["operator"] in PASSING else [*before, operator]
    return []


def _flat(numbers: list[Any]) -> list[int]:
    flat: list[int] = []
    for one in numbers:
        flat += _flat(one) if isinstance(one, list) else [one]
    return flat


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
