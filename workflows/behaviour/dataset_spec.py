"""What a dataset is, as its feature spec says it: features, channels, and how samples are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
from ...schemas.users_layout import USERS, CrossOf, EncodingOf, UsersLayout
from ..features.feature import INTERACTION, ITEM
from ..features.feature_set import TARGET_SUFFIX
from ..features.fitted_numbers import FittedNumbers
from ..features.item_values import ItemValues
from ..vocabularies.vocabulary import CATEGORIES
from .behaviour_columns import LABEL as LABEL_COLUMN
from .behaviour_columns import BehaviourColumns
from .rules import LATEST, SampleRules

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


EVENTS, ITEM_CHANGES = "events", "item_changes"
"""Folders of a dataset of users: all interactions that are counted; values of items in time."""


@dataclass(frozen=True)
class InTime:
    """What a sample's own time decides."""

    events: FittedNumbers | None = None
    """What the counts of ``events/`` become; None where counts are those of a whole log."""
    changes: ItemValues | None = None
    """The values of items that have a file in ``item_changes/``."""


def users_layout_of(
    columns: BehaviourColumns, rules: SampleRules, in_time: InTime | None = None
) -> UsersLayout:
    """Say how samples are made of the users' rows that this package writes."""
    in_time, features = in_time or InTime(), columns.features
    of_item = {name + TARGET_SUFFIX: name for name in features.numbers(ITEM)}
    encodings = {}
    target_of = dict(zip(columns.items, columns.targets, strict=True))
    for encoding in features.encodings:
        for name, kind in zip(encoding.names, encoding.kinds, strict=True):
            if in_time.events is None:
                of_item[name + TARGET_SUFFIX] = name
                continue
            encodings[name + TARGET_SUFFIX] = EncodingOf(
                target_of[encoding.column],
                kind,
                f"{EVENTS}/{encoding.column}.parquet",
                float(in_time.events.prior),
                float(features.smoothing),
            )
    of_item |= {feature.name + TARGET_SUFFIX: feature.name for feature in features.vectors}
    of_item |= {feature.name: feature.name for feature in features.lists}
    names = (*columns.item_features, *columns.of_items)
    changes = in_time.changes
    changing = [name for name in names if changes is not None and changes.changes(name)]
    of_user = {name: name for name in columns.users}
    taken = {*columns.users, columns.item, columns.timestamp, *features.beside_user}

    def named(name: str) -> str:
        """A name for a column beside those of the log."""
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
        negatives_per_positive=rules.twins,
        negatives_not_in_history=rules.negatives_not_in_history,
        times=columns.timestamp if columns.intervals or encodings else None,
        time_unit=features.time_intervals or "seconds",
        same_time=named("same_time_before") if columns.moments else None,
        roles=named("role") if columns.roles else None,
        samples_before=named("samples_before") if columns.continued else None,
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
    )


def per_interaction(columns: BehaviourColumns, rules: SampleRules) -> tuple[str, ...]:
    """Name the features of which each interaction has a value of its own."""
    lags = (name for number in columns.features.lagging for name in number.lagged)
    found = (*columns.contexts, *columns.features.numbers(INTERACTION), *lags)
    if rules.feature_values == LATEST:
        return found
    return (*columns.changing_keys, *columns.changing_numbers, *found)


def users_spec(
    columns: BehaviourColumns,
    sizes: Mapping[str, int],
    rules: SampleRules,
    files: Sequence[str],
    in_time: InTime | None = None,
) -> FeatureSpec:
    """Describe the dataset whose files, those of train and of test, have one row per user."""
    both = dict.fromkeys(rules.mappings, files)
    spec = dataset_spec(columns, sizes, rules.max_sequence_length, both)
    sources = {
        mapping: tuple(replace(chunk, type=USERS) for chunk in chunks)
        for mapping, chunks in spec.source_spec.items()
    }
    stated = users_layout_of(columns, rules, in_time).to_dict()
    return replace(spec, source_spec=sources, metadata={USERS: stated})
