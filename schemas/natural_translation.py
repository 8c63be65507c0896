"""Facts that a FeatureSpec and a Merlin schema have in common, each in its own terms.

A feature's dtype, cardinality and length become a column's dtype, domain and value count; a
channel becomes tags. What only one of the two can say is not looked at here:
:mod:`.merlin_schema` carries it across.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any

from .channels import channels_of, contract_of, known_channel, tag_names
from .dtypes import canonical_dtype, is_number
from .feature_spec import Feature, FeatureSpec
from .merlin_import import ColumnSchema, Schema, Tags, TagSet, md


def ids_start_at_one(channels: Iterable[str]) -> bool:
    """Return which of the two conventions for ids holds.

    In the SIM family 0 pads and ids run 1..cardinality, so tables have cardinality + 1 rows.
    Elsewhere (DLRM) ids run 0..cardinality - 1.
    """
    return contract_of(channels).first_id == 1


def shared_domains(spec: FeatureSpec) -> dict[str, str]:
    """Name each categorical feature's domain: the embedding table that it uses.

    Features of the same index in the channels that share tables (the target item's features
    and the histories) share one, named by what their names have in common: ``item_id`` for
    ``item_id_trgt``, ``item_id_pos`` and ``item_id_neg``. Every other feature has one of its own.
    """
    grouped = contract_of(spec.channel_spec).shared_tables
    channels = [spec.channel_spec.get(name, ()) for name in grouped]
    in_group = {name for names in channels for name in names}
    domains = {name: name for name in spec.feature_spec if name not in in_group}
    for index in range(max(map(len, channels), default=0)):
        group = [names[index] for names in channels if index < len(names)]
        common = os.path.commonprefix(group).rstrip("_-. ") if len(group) > 1 else group[0]
        taken = set(domains.values())
        numbered = (f"{group[0]}_{number}" for number in itertools.count(2))
        options = itertools.chain((common, *group), numbered)
        domain = next(name for name in options if name and name not in taken)
        for name in group:
            domains.setdefault(name, domain)
    return domains


def natural_schema(spec: FeatureSpec) -> Schema:
    """Say in Merlin's terms what of the spec Merlin has terms for."""
    domains = shared_domains(spec)
    lowest_is_pad = ids_start_at_one(spec.channel_spec)
    channels_by_name: dict[str, list[str]] = {}
    for channel, names in spec.channel_spec.items():
        for name in dict.fromkeys(names):
            channels_by_name.setdefault(name, []).append(channel)
    columns = []
    for name in _column_order(spec):
        feature = spec.feature_spec[name]
        channels = channels_by_name.get(name, [])
        is_history = any(known and known.is_list for known in map(known_channel, channels))
        properties: dict[str, Any] = {}
        if isinstance(feature.cardinality, int):
            highest = feature.cardinality if lowest_is_pad else feature.cardinality - 1
            properties["domain"] = {"min": 0, "max": highest, "name": domains[name]}
        columns.append(
            ColumnSchema(
                name,
                tags=_tags(spec, name, feature, channels),
                properties=properties,
                dtype=_merlin_dtype(feature.dtype),
                dims=_dims(feature, is_history=is_history),
            )
        )
    return Schema(columns)


def natural_spec(schema: Schema) -> FeatureSpec:
    """Say in a spec's terms what of the schema it has terms for; no files, no metadata."""
    channels = channels_of(schema)
    lowest_is_pad = ids_start_at_one(channels)
    features = {
        name: _feature(column, lowest_is_pad) for name, column in schema.column_schemas.items()
    }
    return FeatureSpec(features, {}, {name: tuple(names) for name, names in channels.items()})


def cardinality_of(column: ColumnSchema, lowest_is_pad: bool) -> int | None:
    """Return how many ids a column's domain has, None where it is not ids."""
    highest = (column.properties.get("domain") or {}).get("max")
    if not isinstance(highest, int) or isinstance(highest, bool) or Tags.CONTINUOUS in column.tags:
        return None
    cardinality = highest if lowest_is_pad else highest + 1
    return cardinality if cardinality > 0 else None


def _column_order(spec: FeatureSpec) -> list[str]:
    # The published order: label, user, target item, positive and negative history.
    known = contract_of(spec.channel_spec).channels
    channels = [name for name in known if name in spec.channel_spec]
    channels += [name for name in spec.channel_spec if name not in channels]
    in_channels = [name for channel in channels for name in spec.channel_spec[channel]]
    ordered = dict.fromkeys([*in_channels, *spec.feature_spec])
    return [name for name in ordered if name in spec.feature_spec]


def _tags(spec: FeatureSpec, name: str, feature: Feature, channels: list[str]) -> TagSet:
    known = {channel: known_channel(channel) for channel in channels}
    chosen: list[Any] = []
    for channel, entry in known.items():
        chosen += [*(entry.tags if entry else ()), channel]
    for channel, entry in known.items():
        if entry is not None and spec.channel_spec[channel][0] == name:
            chosen += entry.first_tags
    # A feature of no channel gets no tag by which plain rows would take it into one.
    if not any(map(known_channel, spec.channel_spec)):
        if feature.cardinality is not None:
            chosen.append(Tags.CATEGORICAL)
        elif is_number(feature.dtype):
            chosen.append(Tags.CONTINUOUS)
    tags = TagSet()
    for tag in chosen:
        try:
            tags = tags + TagSet([tag])
        except ValueError:  # a channel whose name is a tag that contradicts another one
            continue
    return tags


def _merlin_dtype(spelling: str) -> Any:
    name = canonical_dtype(spelling)
    # Merlin has no bfloat16; float16 is its only other half.
    return md.dtype({"str": str, "bfloat16": "float16"}.get(name or "", name))


def _dims(feature: Feature, *, is_history: bool) -> tuple[Any, ...] | None:
    if is_history:
        longest = feature.dimensions[0] if feature.dimensions else None
        return ((0, None), (0, longest), *((feature.dimensions or ())[1:]))
    return None if feature.dimensions is None else (None, *feature.dimensions)


def _feature(column: ColumnSchema, lowest_is_pad: bool) -> Feature:
    dtype = column.dtype.name if canonical_dtype(column.dtype.name) else "object"
    lengths = [dimension.max for dimension in (column.shape.dims or ())[1:]]
    dimensions = tuple(lengths) if lengths and all(lengths) else None
    return Feature(dtype, cardinality_of(column, lowest_is_pad), dimensions)


def facts(schema: Schema, lowest_is_pad: bool) -> dict[str, dict[str, Any]]:
    """Return, by column, what a dataset's two descriptions must agree on."""
    channels = channels_of(schema)
    channel_of = {name: channel for channel, names in channels.items() for name in names}
    return {
        name: {"channel": channel_of.get(name), **_facts(column, lowest_is_pad)}
        for name, column in schema.column_schemas.items()
    }


def _facts(column: ColumnSchema, lowest_is_pad: bool) -> dict[str, Any]:
    domain = column.properties.get("domain") or {}
    said_otherwise = ("domain", "value_count")
    return {
        "dtype": column.dtype.name,
        "cardinality": cardinality_of(column, lowest_is_pad),
        "lowest id (domain min)": domain.get("min"),
        "highest id (domain max)": domain.get("max"),
        "table (domain name)": domain.get("name"),
        "is a list": bool(column.is_list),
        "lengths (value count)": [(dim.min, dim.max) for dim in (column.shape.dims or ())[1:]],
        "tags": tag_names(column),
        "properties": {k: v for k, v in column.properties.items() if k not in said_otherwise},
    }
