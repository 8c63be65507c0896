"""What a dataset of samples is, as its feature spec says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...schemas.channels import (
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
from ...schemas.specs.feature_spec import Chunk, Feature, FeatureSpec
from ...schemas.users_layout import USERS, UsersLayout
from ..features.feature_set import TARGET_SUFFIX
from ..vocabularies.vocabulary import CATEGORIES
from .behaviour_columns import LABEL as LABEL_COLUMN
from .behaviour_columns import BehaviourColumns
from .rules import SampleRules

LABEL_DTYPE = "int8"  # as in the published parquet; the loader and Keras take it as it is
ID_DTYPE = "int64"
NUMBER_DTYPE = "float32"


def dataset_spec(
    columns: BehaviourColumns,
    sizes: Mapping[str, int],
    longest: int,
    files: Mapping[str, Sequence[str]],
) -> FeatureSpec:
    """Describe the dataset.

    Args:
        columns: The log's columns.
        sizes: How many ids each domain has.
        longest: The longest history.
        files: Mapping -> parquet files, relative to the dataset directory.
    """
    features = {LABEL_COLUMN: Feature(LABEL_DTYPE)}
    features |= {name: Feature(ID_DTYPE, sizes[name]) for name in columns.users}
    for name, target in zip(columns.items, columns.targets, strict=True):
        features[target] = Feature(ID_DTYPE, sizes[name])
    for histories in (columns.positives, columns.negatives):
        for name, history in zip(columns.items, histories, strict=True):
            features[history] = Feature(ID_DTYPE, sizes[name], (longest,))
    features |= {name: Feature(NUMBER_DTYPE, None, (longest,)) for name in columns.intervals}
    for feature in columns.features.lists:
        features[feature.name] = Feature(ID_DTYPE, sizes[feature.name], (feature.longest,))
    for cross in columns.features.crosses:
        features[cross.name] = Feature(ID_DTYPE, cross.buckets, (1,))
    beside = (*columns.features.beside_user, *columns.features.target_numbers)
    widths = {feature.name + TARGET_SUFFIX: (feature.size,) for feature in columns.features.vectors}
    features |= {name: Feature(NUMBER_DTYPE, None, widths.get(name)) for name in beside}
    more = {
        CONTEXT_FEATURES: columns.contexts,
        HISTORY_TIME_INTERVALS: columns.intervals,
        TARGET_ITEM_LISTS: columns.features.target_lists,
        USER_NUMERICAL: columns.features.beside_user,
        TARGET_ITEM_NUMERICAL: columns.features.target_numbers,
    }
    return FeatureSpec(
        feature_spec=features,
        source_spec={
            mapping: (Chunk("parquet", columns.output, tuple(names)),)
            for mapping, names in files.items()
        },
        channel_spec={
            LABEL: (LABEL_COLUMN,),
            USER_FEATURES: (columns.user, *columns.user_features),
            TARGET_ITEM_FEATURES: columns.targets,
            POSITIVE_HISTORY: columns.positives,
            NEGATIVE_HISTORY: columns.negatives,
            **{channel: names for channel, names in more.items() if names},
        },
    )


SAME_TIME_BEFORE = "same_time_before"
"""The column of users' rows that says how many interactions of its own time stand before each."""


def users_layout_of(columns: BehaviourColumns, rules: SampleRules) -> UsersLayout:
    """Say how samples are made of the users' rows that this package writes."""
    return UsersLayout(
        history=columns.item,
        positions={mapping: (f"{mapping}_begin", f"{mapping}_end") for mapping in rules.mappings},
        item_table=f"{CATEGORIES}/{columns.item}.parquet",
        item_features=columns.item_features,
        negatives=rules.drawn_by,
        seed=rules.seed,
        negatives_per_positive=rules.twins,
        negatives_not_in_history=rules.negatives_not_in_history,
        times=columns.timestamp if columns.intervals else None,
        time_unit=columns.features.time_intervals or "seconds",
        same_time=SAME_TIME_BEFORE if columns.own_time_excluded else None,
    )


def users_spec(
    columns: BehaviourColumns,
    sizes: Mapping[str, int],
    rules: SampleRules,
    files: Sequence[str],
) -> FeatureSpec:
    """Describe the dataset whose files, those of train and of test, have one row per user."""
    both = dict.fromkeys(rules.mappings, files)
    spec = dataset_spec(columns, sizes, rules.max_sequence_length, both)
    sources = {
        mapping: tuple(replace(chunk, type=USERS) for chunk in chunks)
        for mapping, chunks in spec.source_spec.items()
    }
    stated = users_layout_of(columns, rules).to_dict()
    return replace(spec, source_spec=sources, metadata={USERS: stated})
