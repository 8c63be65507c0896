"""FeatureSpec <-> Merlin schema, without loss either way.

Each direction first says what it can in the other's own terms (:mod:`.natural_translation`),
then looks whether the way back gives what it started from. Where it does not, the original goes
along: a spec as JSON in the property ``feature_spec`` of the schema's first column, a schema as
plain data in the spec's ``metadata.merlin_schema``. On the way back the original is taken if what
it was carried in still says the same; where that was edited, the edits are carried out on the
original.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..foundation.exceptions import MerlinSimError, Problem, describe
from .channels import channels_of
from .column_record import from_record, same_column, same_schema, to_record
from .feature_spec import Chunk, Feature, FeatureSpec
from .merlin_import import ColumnSchema, Schema, Tags, TagSet
from .natural_translation import facts, ids_start_at_one, natural_schema, natural_spec
from .spec_file import spec_from_plain

SPEC_PROPERTY = "feature_spec"
SCHEMA_METADATA = "merlin_schema"


def to_merlin_schema(spec: FeatureSpec) -> Schema:
    """Translate a spec to the Merlin schema that says the same.

    Args:
        spec: A spec of the right shape; its files need not exist.

    Returns:
        One column a feature, in the published order of channels, tagged by channel; features
        that share a table share a domain name. ``to_feature_spec`` gives the spec back.

    Raises:
        MerlinSimError: Where the spec has no feature at all, or holds what is not plain data.
    """
    carried = _carried_schema(spec)
    schema = natural_schema(spec) if carried is None else carried
    if not schema.column_schemas:
        if any(spec.to_dict().values()):
            raise MerlinSimError("feature spec: a schema needs at least one feature, got none")
        return schema
    if _same_spec(to_feature_spec(schema), spec):
        return schema
    document = _document(spec)
    first, *others = schema.column_schemas.values()
    return Schema([with_properties(first, {SPEC_PROPERTY: document}), *others])


def to_feature_spec(schema: Schema) -> FeatureSpec:
    """Translate a Merlin schema to the spec that says the same.

    Args:
        schema: Any schema, such as one that an NVTabular workflow emits.

    Returns:
        One feature a column; channels as far as the tags name them (see
        :func:`~merlin_sim.schemas.channels.channels_of`). A schema knows no files: unless it
        came from a spec, ``source_spec`` is empty. ``to_merlin_schema`` gives the schema back.
    """
    original, bare = carried_spec(schema)
    if original is not None:
        before = to_merlin_schema(original)
        if same_schema(before, schema):
            return original
        _, before = carried_spec(before)
        spec, schema = updated_spec(original, before, bare), bare
    else:
        spec = natural_spec(schema)
    metadata = {key: value for key, value in spec.metadata.items() if key != SCHEMA_METADATA}
    spec = replace(spec, metadata=metadata, path=None, line_of=None)
    if same_schema(natural_schema(spec), schema):
        return spec
    columns = [to_record(column) for column in schema.column_schemas.values()]
    return replace(spec, metadata={**metadata, SCHEMA_METADATA: {"columns": columns}})


def carried_spec(schema: Schema) -> tuple[FeatureSpec | None, Schema]:
    """Return the spec that a column of a schema carries, if one does, and the schema without it."""
    columns = list(schema.column_schemas.values())
    for index, column in enumerate(columns):
        document = column.properties.get(SPEC_PROPERTY)
        if not isinstance(document, str):
            continue
        try:
            spec = spec_from_plain(json.loads(document))
        except (ValueError, RecursionError, MerlinSimError):  # a property of another tool
            continue
        if spec.feature_spec:
            columns[index] = without_property(column, SPEC_PROPERTY)
            return spec, Schema(columns)
    return None, schema


def with_properties(column: ColumnSchema, properties: Mapping[str, Any]) -> ColumnSchema:
    """Return the column with these properties beside, or instead of, its own."""
    record = to_record(column)
    return from_record({**record, "properties": {**record["properties"], **properties}})


def without_property(column: ColumnSchema, name: str) -> ColumnSchema:
    """Return the column without one of its properties."""
    record = to_record(column)
    record["properties"].pop(name, None)
    return from_record(record)


def _carried_schema(spec: FeatureSpec) -> Schema | None:
    record = spec.metadata.get(SCHEMA_METADATA)
    if not isinstance(record, Mapping) or not isinstance(record.get("columns"), list):
        return None
    try:
        schema = Schema([from_record(column) for column in record["columns"]])
    except (ValueError, TypeError, KeyError, AttributeError):  # metadata of another tool
        return None
    if not schema.column_schemas or not spec.feature_spec:
        return None
    return updated_schema(schema, spec)


def _document(spec: FeatureSpec) -> str:
    try:
        return json.dumps(spec.to_dict(), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise MerlinSimError(f"feature spec: expected plain data: {error}") from error


def _same_spec(ours: FeatureSpec, theirs: FeatureSpec) -> bool:
    return json.dumps(ours.to_dict(), default=repr) == json.dumps(theirs.to_dict(), default=repr)


def updated_spec(original: FeatureSpec, before: Schema, now: Schema) -> FeatureSpec:
    """Bring a spec up to date with a schema that was made from it and edited since."""
    old, new = natural_spec(before), natural_spec(now)
    features = {}
    order = [name for name in original.feature_spec if name in new.feature_spec]
    order += [name for name in new.feature_spec if name not in original.feature_spec]
    for name in order:
        if name not in original.feature_spec:
            features[name] = new.feature_spec[name]
        else:
            features[name] = _updated_feature(
                original.feature_spec[name], old.feature_spec.get(name), new.feature_spec[name]
            )
    left = before.select_by_name([n for n in before.column_names if n in now.column_schemas])
    is_tagged_as_before = channels_of(left) == channels_of(now)
    channels = original.channel_spec if is_tagged_as_before else new.channel_spec
    return replace(
        original,
        feature_spec=features,
        channel_spec={
            channel: tuple(name for name in names if name in features)
            for channel, names in channels.items()
        },
        source_spec={
            mapping: tuple(_without(chunk, set(features)) for chunk in chunks)
            for mapping, chunks in original.source_spec.items()
        },
    )


def updated_schema(original: Schema, spec: FeatureSpec) -> Schema:
    """Bring a schema up to date with a spec that was made from it and edited since."""
    old = natural_schema(natural_spec(original)).column_schemas
    new = natural_schema(spec).column_schemas
    order = [name for name in original.column_names if name in new]
    order += [name for name in new if name not in original.column_schemas]
    columns = []
    for name in order:
        if name not in original.column_schemas:
            columns.append(new[name])
        elif same_column(old[name], new[name]):
            columns.append(original.column_schemas[name])
        else:
            columns.append(_updated_column(original.column_schemas[name], old[name], new[name]))
    return Schema(columns)


def _updated_feature(original: Feature, old: Feature | None, new: Feature) -> Feature:
    if old is None:
        return new
    changed = {
        key: getattr(new, key)
        for key in ("dtype", "cardinality", "dimensions")
        if getattr(new, key) != getattr(old, key)
    }
    return replace(original, **changed)


def _updated_column(original: ColumnSchema, old: ColumnSchema, new: ColumnSchema) -> ColumnSchema:
    tags = original.tags
    if set(old.tags) != set(new.tags):
        tags = (original.tags - TagSet(list(old.tags))).override(list(new.tags))
    properties = {**original.properties}
    for key in ("domain", "value_count"):
        if old.properties.get(key) == new.properties.get(key):
            continue
        properties.pop(key, None)
        if key in new.properties:
            properties[key] = {**original.properties.get(key, {}), **new.properties[key]}
    has_new_shape = old.shape.dims != new.shape.dims
    return ColumnSchema(
        original.name,
        tags=tags,
        properties=properties,
        dtype=(original if old.dtype.name == new.dtype.name else new).dtype.without_shape,
        dims=(new if has_new_shape else original).shape.as_tuple,
    )


def _without(chunk: Chunk, known: set[str]) -> Chunk:
    # A csv file's columns stand in the order of `features`: none of them can be left out.
    if chunk.type == "csv":
        return chunk
    return replace(chunk, features=tuple(name for name in chunk.features if name in known))


def check_agreement(
    file: Path, spec: FeatureSpec, derived: Schema, schema: Schema
) -> list[Problem]:
    """Compare a schema.pbtxt with the schema that the spec translates to.

    Every fact that follows from the spec must stand there: what is missing is a disagreement, as
    what is different is. Tags and properties of the file's own are free, and so is the order of
    the columns: channels give the features' order.
    """
    lowest_is_pad = ids_start_at_one(spec.channel_spec)
    in_spec, found = facts(derived, lowest_is_pad), facts(schema, lowest_is_pad)
    missing, more = sorted(set(in_spec) - set(found)), sorted(set(found) - set(in_spec))
    problems = []
    if missing or more:
        received = f"columns missing: {missing}, columns unknown: {more}"
        problems.append(Problem(str(file), (), "the spec's features", received))
    for name in sorted(in_spec.keys() & found.keys()):
        for fact, ours, theirs in _differences(in_spec[name], found[name]):
            expected = f"{fact} {ours}, as in {spec.path}"
            problems.append(Problem(str(file), (name,), expected, theirs))
    return problems


def free_as_in_spec(schema: Schema, spec: FeatureSpec) -> Schema:
    """Return the schema without CATEGORICAL and CONTINUOUS where they alone give a channel.

    They say of what type a column is. A column that the spec leaves out of every channel may have
    them, and a model of plain rows would read it.
    """
    in_channels = {name for names in spec.channel_spec.values() for name in names}
    left_out = {name for names in channels_of(schema).values() for name in names} - in_channels
    types = {Tags.CATEGORICAL.value, Tags.CONTINUOUS.value}
    columns = []
    for column in schema.column_schemas.values():
        if column.name in left_out:
            record = to_record(column)
            column = from_record({**record, "tags": sorted({*record["tags"]} - types)})
        columns.append(column)
    return Schema(columns)


def _differences(expected: dict[str, Any], found: dict[str, Any]) -> list[tuple[str, str, str]]:
    expected, found = dict(expected), dict(found)
    differences = []
    missing_tags = sorted(expected.pop("tags") - found.pop("tags"))
    if missing_tags:
        differences.append(("the tags", ", ".join(missing_tags), "a column without them"))
    theirs = found.pop("properties")
    for key, value in expected.pop("properties").items():
        if key != SPEC_PROPERTY and theirs.get(key) != value:
            differences.append((f"the property {key}", describe(value), describe(theirs.get(key))))
    differences += [
        (fact, _shown(value), _shown(found[fact]))
        for fact, value in expected.items()
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
        carried = {k: v for k, v in column.properties.items() if k == SPEC_PROPERTY}
        own = without_property(schema[column.name], SPEC_PROPERTY)
        columns.append(with_properties(own, carried))
    return Schema(columns)
