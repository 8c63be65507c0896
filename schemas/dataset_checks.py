"""What must agree within a dataset directory: metadata.json and the spec."""

from __future__ import annotations

from pathlib import Path

from ..foundation.problem import Problem
from . import METADATA_FILE
from .specs.feature_spec import FeatureSpec
from .specs.metadata_file import cardinalities, read_cardinalities


def check_metadata(directory: Path, spec: FeatureSpec) -> list[Problem]:
    """Compare metadata.json, if it is there, with the spec.

    Its entries follow the published order (user features, then item features); their names are
    free. Where they are the names of the spec's tables they may stand in another order.
    """
    file = directory / METADATA_FILE
    if not file.exists():
        return []
    stated, wanted = read_cardinalities(file), cardinalities(spec)
    if len(stated) != len(wanted):
        names = ", ".join(entry["name"] for entry in wanted)
        expected = f"{len(wanted)} entries ({names}), as in the spec"
        return [Problem(str(file), ("cardinalities",), expected, str(len(stated)))]
    by_name = dict(stated)
    if set(by_name) != {entry["name"] for entry in wanted}:
        by_name = {e["name"]: value for e, (_, value) in zip(wanted, stated, strict=True)}
    return [
        Problem(
            str(file),
            ("cardinalities", place),
            f"{entry['value']} for {entry['name']}, as in the spec",
            str(by_name[entry["name"]]),
        )
        for place, entry in enumerate(wanted)
        if by_name[entry["name"]] != entry["value"]
    ]
