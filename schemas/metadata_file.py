"""metadata.json, the published list of cardinalities: one for each embedding table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..foundation.exceptions import MerlinSimError, Problem
from ..foundation.files import read_json
from . import METADATA_FILE
from .channels import contract_of
from .feature_spec import FeatureSpec

FORM = '{"cardinalities": [{"name": ..., "value": ...}, ...]}'


def cardinalities(spec: FeatureSpec) -> list[dict[str, Any]]:
    """Return the published metadata's list: a name and a value for each embedding table.

    In the published order: the family's channels of ids one after another, then what is in none.
    """
    from .natural_translation import shared_domains

    domains = shared_domains(spec)
    first = [
        name
        for channel in contract_of(spec.channel_spec).categorical
        for name in spec.channel_spec.get(channel, ())
        if name in spec.feature_spec
    ]
    found: dict[str, int] = {}
    for name in (*first, *spec.feature_spec):
        cardinality = spec.feature_spec[name].cardinality
        if isinstance(cardinality, int):
            found.setdefault(domains[name], cardinality)
    return [{"name": name, "value": value} for name, value in found.items()]


def read_cardinalities(file: Path) -> list[tuple[str, int]]:
    """Read metadata.json."""
    content = read_json(file, FORM)
    entries = content.get("cardinalities") if isinstance(content, Mapping) else None
    if not isinstance(entries, list):
        raise MerlinSimError(f"{file}: expected {FORM}, got no such list")
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        value = entry.get("value") if isinstance(entry, Mapping) else None
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if not is_whole or not isinstance(entry.get("name"), str):
            raise MerlinSimError(
                f"{file}: cardinalities[{index}]: expected {FORM}, got {entry!r:.80}"
            )
        if entry["name"] in seen:
            raise MerlinSimError(
                f"{file}: cardinalities[{index}]: expected each name once, got "
                f"{entry['name']!r} again"
            )
        seen.add(entry["name"])
    return [(entry["name"], entry["value"]) for entry in entries]


def check_metadata(directory: Path, spec: FeatureSpec) -> list[Problem]:
    """Compare metadata.json, if it is there, with the spec.

    Its entries follow the published order (user features, then item features); their names are
    free. Where they are the names of the spec's tables they may stand in another order.
    """
    file = directory / METADATA_FILE
    if not file.exists():
        return []
    stated, entries = read_cardinalities(file), cardinalities(spec)
    if len(stated) != len(entries):
        names = ", ".join(entry["name"] for entry in entries)
        expected = f"{len(entries)} entries ({names}), as in the spec"
        return [Problem(str(file), ("cardinalities",), expected, str(len(stated)))]
    by_name = dict(stated)
    if set(by_name) != {entry["name"] for entry in entries}:
        by_name = {e["name"]: value for e, (_, value) in zip(entries, stated, strict=True)}
    return [
        Problem(
            str(file),
            ("cardinalities", index),
            f"{entry['value']} for {entry['name']}, as in the spec",
            str(by_name[entry["name"]]),
        )
        for index, entry in enumerate(entries)
        if by_name[entry["name"]] != entry["value"]
    ]
