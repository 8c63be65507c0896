"""What becomes of a carried original when its carrier was edited: each part follows its own edit.

A column or feature that still says the same is taken from the original, whole. Where it says
something else, only that is changed and everything beside it stays.
"""

from __future__ import annotations

from dataclasses import replace

from ..contracts.known_contracts import channels_of
from ..specs.feature_spec import Chunk, Feature, FeatureSpec
from .column_record import same_column
from .merlin_import import ColumnSchema, Schema, TagSet
from .natural_translation import natural_schema, natural_spec


def updated_spec(original: FeatureSpec, before: Schema, now: Schema) -> FeatureSpec:
    """Bring a spec up to date with a schema that was made from it and edited since.

    Args:
        original: The spec that the schema carried.
        before: The schema as the original spec translates to it.
        now: The schema as it is.
    """
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
    """Bring a schema up to date with a spec that was made from it and edited since.

    Args:
        original: The schema that the spec carried.
        spec: The spec as it is.
    """
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
