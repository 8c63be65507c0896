"""The feature spec of a dataset: features, channels, and how samples are made."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from merlin.schema import ColumnSchema, Schema

from ..schemas.channels import (
    BEHAVIOUR,
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
)
from ..schemas.feature_spec import Chunk, FeatureSpec
from ..schemas.layout_names import CATEGORIES
from ..schemas.merlin_schema import to_feature_spec
from ..schemas.users_layout import USERS, CrossOf, EncodingOf, UsersLayout
from .behaviour_columns import LABEL_COLUMN, BehaviourColumns
from .feature import INTERACTION, ITEM, LIFETIME, RECENCY, TARGET_SUFFIX
from .fitted_numbers import FittedNumbers
from .rules import LATEST, SampleRules

LABEL_DTYPE = "int8"  # as in the published parquet; the loader and Keras take it as it is
ID_DTYPE = "int64"
NUMBER_DTYPE = "float32"


def samples_schema(columns: BehaviourColumns, sizes: Mapping[str, int], longest: int) -> Schema:
    """Describe the samples that are made of users' rows: a column for each feature of a sample."""
    features = columns.features
    domains = {name: name for name in (*columns.users, *columns.list_names)}
    for names in (columns.targets, columns.positives, columns.negatives):
        domains |= dict(zip(names, columns.items, strict=True))
    highest = {name: sizes[domain] for name, domain in domains.items()}
    for cross in features.crosses:
        domains[cross.name], highest[cross.name] = cross.name, cross.buckets
    lengths = {feature.name: feature.longest for feature in features.lists}
    lengths |= {cross.name: 1 for cross in features.crosses}
    lengths |= {feature.name + TARGET_SUFFIX: feature.size for feature in features.vectors}
    found = []
    for channel, names in channels_of(columns).items():
        kind = BEHAVIOUR.channels[channel]
        for index, name in enumerate(names):
            dims: tuple[Any, ...] = (None, lengths[name]) if name in lengths else (None,)
            if kind.is_list:
                dims = ((0, None), (0, longest))
            domain = {"min": 0, "max": highest.get(name), "name": domains.get(name)}
            dtype = ID_DTYPE if name in domains else NUMBER_DTYPE
            found.append(
                ColumnSchema(
                    name,
                    tags=[*kind.tags, channel, *(kind.first_tags if not index else ())],
                    properties={"domain": domain} if name in domains else {},
                    dtype=LABEL_DTYPE if channel == LABEL else dtype,
                    dims=dims if len(dims) > 1 else None,
                )
            )
    return Schema(found)


def channels_of(columns: BehaviourColumns) -> dict[str, tuple[str, ...]]:
    """The channels of the samples, in the published order; those without features are left out."""
    found = {
        LABEL: (LABEL_COLUMN,),
        USER_FEATURES: (columns.user, *columns.user_features),
        CONTEXT_FEATURES: columns.contexts,
        TARGET_ITEM_FEATURES: columns.targets,
        POSITIVE_HISTORY: columns.positives,
        NEGATIVE_HISTORY: columns.negatives,
        HISTORY_TIME_INTERVALS: columns.intervals,
        TARGET_ITEM_LISTS: columns.features.target_lists,
        USER_NUMERICAL: columns.features.user_numbers,
        TARGET_ITEM_NUMERICAL: columns.features.target_numbers,
    }
    return {channel: names for channel, names in found.items() if names}


EVENTS, ITEM_CHANGES = "events", "item_changes"
"""Folders of a dataset of users: all interactions that are counted; values of items in time."""


def users_layout_of(
    columns: BehaviourColumns,
    rules: SampleRules,
    events: FittedNumbers | None = None,
    changes: Collection[str] = (),
) -> UsersLayout:
    """Say how samples are made of the users' rows that this package writes.

    Without ``events`` counts are those of a whole log, and recency is by its last two days. The
    values of ``changes``, columns of items, have files in ``item_changes/``.
    """
    features = columns.features
    of_item = {name + TARGET_SUFFIX: name for name in features.numbers(ITEM)}
    encodings = {}
    target_of = dict(zip(columns.items, columns.targets, strict=True))
    for encoding in features.encodings:
        for name, kind in zip(encoding.names, encoding.kinds, strict=True):
            if events is None and kind != RECENCY:
                of_item[name + TARGET_SUFFIX] = name
                continue
            encodings[name + TARGET_SUFFIX] = EncodingOf(
                target_of[encoding.column],
                kind,
                f"{EVENTS}/{encoding.column}.parquet",
                float(events.prior) if events else 0.0,
                float(features.smoothing),
            )
    of_item |= {feature.name + TARGET_SUFFIX: feature.name for feature in features.vectors}
    of_item |= {feature.name: feature.name for feature in features.lists}
    names = (*columns.item_features, *columns.of_items)
    changing = [name for name in names if name in changes]
    of_user = {name: name for name in columns.users}
    taken = {*columns.users, columns.item, columns.timestamp, *features.user_numbers}

    def named(name: str) -> str:
        """A name for a column that the log does not have."""
        return named(f"{name}_") if name in taken else name

    return UsersLayout(
        history=columns.item,
        positions={
            mapping: (named(f"{mapping}_begin"), named(f"{mapping}_end"))
            for mapping in rules.mappings
        },
        item_table=f"{CATEGORIES}/{columns.item}.parquet",
        item_features=columns.item_features,
        negatives=rules.drawn_by,
        seed=rules.seed,
        negatives_per_positive=rules.negatives_drawn,
        negatives_not_in_history=rules.negatives_not_in_history,
        times=columns.timestamp if columns.intervals or encodings else None,
        time_unit=features.time_intervals or "seconds",
        same_time=named("same_time_before") if columns.time_numbers else None,
        roles=named("role") if columns.roles else None,
        samples_before=named("samples_before") if columns.continued else None,
        user_hash=named("user_hash"),
        per_interaction=per_interaction(columns, rules),
        item_columns=of_item,
        item_changes={name: f"{ITEM_CHANGES}/{name}.parquet" for name in changing},
        changed_at=named("interaction_time") if changing else None,
        crosses={
            cross.name: CrossOf(
                tuple((target_of | of_user)[name] for name in cross.columns), cross.buckets
            )
            for cross in features.crosses
        },
        encodings=encodings,
        lifetime_counts={
            name + LIFETIME + TARGET_SUFFIX: target_of[name] for name in features.lifetime_counts
        },
    )


def per_interaction(columns: BehaviourColumns, rules: SampleRules) -> tuple[str, ...]:
    """Name the features of which each interaction has a value of its own."""
    lags = (name for number in columns.features.lagging for name in number.lagged)
    found = (*columns.contexts, *columns.features.numbers(INTERACTION), *lags)
    if rules.feature_values == LATEST:
        return found
    return (*columns.changing_keys, *columns.changing_numbers, *found)


def users_spec(schema: Schema, layout: UsersLayout, files: Sequence[str]) -> FeatureSpec:
    """Translate the schema of samples to the spec of a dataset with one row per user."""
    chunk = Chunk(USERS, tuple(schema.column_names), tuple(files))
    return replace(
        to_feature_spec(schema),
        source_spec=dict.fromkeys(layout.positions, (chunk,)),
        metadata={USERS: layout.to_dict()},
    )
