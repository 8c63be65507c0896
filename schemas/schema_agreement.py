"""Whether a schema.pbtxt beside a feature spec agrees with the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..foundation.problem import Problem, describe
from .specs.feature_spec import FeatureSpec
from .translation.column_record import from_record, to_record
from .translation.merlin_import import Schema
from .translation.merlin_schema import SPEC_PROPERTY
from .translation.natural_translation import facts, ids_start_at_one


def check_agreement(
    file: Path, spec: FeatureSpec, derived: Schema, schema: Schema
) -> list[Problem]:
    """Compare a schema.pbtxt with the schema that the spec translates to.

    Every fact that follows from the spec must stand there: what is missing is a disagreement, as
    what is different is. Tags and properties of the file's own are free, and so is the order of
    the columns: channels give the features' order.
    """
    lowest_is_pad = ids_start_at_one(spec.channel_spec)
    wanted, found = facts(derived, lowest_is_pad), facts(schema, lowest_is_pad)
    missing, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    problems = []
    if missing or more:
        received = f"columns missing: {missing}, columns unknown: {more}"
        problems.append(Problem(str(file), (), "the spec's features", received))
    for name in sorted(wanted.keys() & found.keys()):
        for fact, ours, theirs in _differences(wanted[name], found[name]):
            expected = f"{fact} {ours}, as in {spec.path}"
            problems.append(Problem(str(file), (name,), expected, theirs))
    return problems


def _differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[tuple[str, str, str]]:
    """List what differs: the fact, what it should be and what it is."""
    wanted, found = dict(wanted), dict(found)
    differences = []
    missing_tags = sorted(wanted.pop("tags") - found.pop("tags"))
    if missing_tags:
        differences.append(("the tags", ", ".join(missing_tags), "a column without them"))
    theirs = found.pop("properties")
    for key, value in wanted.pop("properties").items():
        if key != SPEC_PROPERTY and theirs.get(key) != value:
            differences.append((f"the property {key}", describe(value), describe(theirs.get(key))))
    differences += [
        (fact, _shown(value), _shown(found[fact]))
        for fact, value in wanted.items()
        if found[fact] != value
    ]
    return differences


def _shown(fact: Any) -> str:
    return "nothing" if fact is None else str(fact)


def in_line_with_spec(schema: Schema, derived: Schema) -> Schema:
    """Return a schema.pbtxt that agrees with the spec in the spec's order of columns.

    It keeps its own tags and properties; the spec that it carries gives way to the spec.
    """
    columns = []
    for column in derived.column_schemas.values():
        record = to_record(schema[column.name])
        record["properties"].pop(SPEC_PROPERTY, None)
        if SPEC_PROPERTY in column.properties:
            record["properties"][SPEC_PROPERTY] = column.properties[SPEC_PROPERTY]
        columns.append(from_record(record))
    return Schema(columns)
