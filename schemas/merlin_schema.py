"""FeatureSpec <-> Merlin schema, without loss either way.

Each direction first says what it can in the other's own terms (:mod:`.natural_translation`),
then looks whether the way back gives what it started from. Where it does not, the original goes
along: a spec as JSON in the property ``feature_spec`` of the schema's first column, a schema as
plain data in the spec's ``metadata.merlin_schema``. On the way back such an original is taken
only if what it was carried in still says the same; edits to the carrier win.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .column_record import from_record, same_schema, to_record
from .exceptions import MerlinSimError
from .feature_spec import FeatureSpec
from .merlin_import import ColumnSchema, Schema
from .natural_translation import natural_schema, natural_spec

SPEC_PROPERTY = "feature_spec"
SCHEMA_METADATA = "merlin_schema"


def to_merlin_schema(spec: FeatureSpec) -> Schema:
    """Translate a spec to the Merlin schema that says the same.

    Args:
        spec: A spec of the right shape; its files need not exist.

    Returns:
        One column a feature, in the published order of channels, tagged by channel; features
        that share a table share a domain name. ``to_feature_spec`` gives the spec back.
    """
    schema = _carried_schema(spec) or natural_schema(spec)
    if not schema.column_schemas or _same_spec(to_feature_spec(schema), spec):
        return schema
    try:
        document = json.dumps(spec.to_dict(), ensure_ascii=False)
    except TypeError as error:
        raise MerlinSimError(f"feature spec: metadata is not plain data: {error}") from error
    first, *others = schema.column_schemas.values()
    return Schema([_with_property(first, SPEC_PROPERTY, document), *others])


def to_feature_spec(schema: Schema) -> FeatureSpec:
    """Translate a Merlin schema to the spec that says the same.

    Args:
        schema: Any schema, such as one that an NVTabular workflow emits.

    Returns:
        One feature a column; channels as far as the tags tell them (see
        :func:`~merlin_sim.schemas.channels.channels_of`). A schema knows no files: unless it
        came from a spec, ``source_spec`` is empty. ``to_merlin_schema`` gives the schema back.
    """
    carried = _carried_spec(schema)
    if carried is not None:
        return carried
    spec = natural_spec(schema)
    if same_schema(natural_schema(spec), schema):
        return spec
    columns = [to_record(column) for column in schema.column_schemas.values()]
    return replace(spec, metadata={SCHEMA_METADATA: {"columns": columns}})


def _carried_spec(schema: Schema) -> FeatureSpec | None:
    first = next(iter(schema.column_schemas.values()), None)
    document = first.properties.get(SPEC_PROPERTY) if first is not None else None
    if not isinstance(document, str):
        return None
    try:
        spec = FeatureSpec.from_dict(json.loads(document))
    except (ValueError, RecursionError, MerlinSimError):  # somebody else's property
        return None
    return spec if same_schema(to_merlin_schema(spec), schema) else None


def _carried_schema(spec: FeatureSpec) -> Schema | None:
    record = spec.metadata.get(SCHEMA_METADATA)
    if not isinstance(record, Mapping) or not isinstance(record.get("columns"), list):
        return None
    try:
        schema = Schema([from_record(column) for column in record["columns"]])
    except (ValueError, TypeError, KeyError, AttributeError):  # somebody else's metadata
        return None
    known = natural_spec(schema)
    says_the_same = known.feature_spec == spec.feature_spec and known.channel_spec == {
        name: tuple(names) for name, names in spec.channel_spec.items()
    }
    return schema if says_the_same else None


def _with_property(column: ColumnSchema, name: str, value: Any) -> ColumnSchema:
    return from_record(_record_with(column, name, value))


def _record_with(column: ColumnSchema, name: str, value: Any) -> dict[str, Any]:
    record = to_record(column)
    record["properties"] = {**record["properties"], name: value}
    return record


def _same_spec(ours: FeatureSpec, theirs: FeatureSpec) -> bool:
    return json.dumps(ours.to_dict(), default=repr) == json.dumps(theirs.to_dict(), default=repr)
