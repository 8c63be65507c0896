"""Datasets of behaviour: users with a history of items, and a target item."""

from __future__ import annotations

from ..channel_contract import Channel, ChannelContract
from ..channels import (
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    LABEL,
    LABEL_CHANNEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
    signs,
)

_HISTORY_TAGS = ("sequence", "list", "categorical")

BEHAVIOUR = ChannelContract(
    "behaviour",
    {
        LABEL: LABEL_CHANNEL,
        USER_FEATURES: Channel(
            fewest=0, is_categorical=True, tags=("user", "categorical"), signs=signs("user")
        ),
        CONTEXT_FEATURES: Channel(
            fewest=0, is_categorical=True, tags=("context", "categorical"), signs=signs("context")
        ),
        TARGET_ITEM_FEATURES: Channel(
            fewest=1,
            is_categorical=True,
            tags=("item", "categorical"),
            first_tags=("item_id",),
            signs=signs("item"),
            missing="no single-value column is tagged Tags.ITEM",
        ),
        POSITIVE_HISTORY: Channel(
            fewest=1,
            is_list=True,
            is_categorical=True,
            tags=_HISTORY_TAGS,
            signs=signs("sequence"),
            missing="no list column is tagged Tags.SEQUENCE",
        ),
        NEGATIVE_HISTORY: Channel(fewest=0, is_list=True, is_categorical=True, tags=_HISTORY_TAGS),
        HISTORY_TIME_INTERVALS: Channel(
            fewest=0,
            most=1,
            is_list=True,
            tags=("sequence", "list", "time", "continuous"),
            aligned_with=POSITIVE_HISTORY,
            signs=signs("sequence time"),
        ),
        TARGET_ITEM_LISTS: Channel(
            fewest=0, is_pooled=True, is_categorical=True, tags=("item", "categorical")
        ),
        USER_NUMERICAL: Channel(
            fewest=0,
            takes_vectors=True,
            tags=("user", "continuous"),
            signs=signs("user continuous"),
        ),
        TARGET_ITEM_NUMERICAL: Channel(
            fewest=0,
            takes_vectors=True,
            tags=("item", "continuous"),
            signs=signs("item continuous"),
        ),
    },
    shared_tables=(TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY),
    first_id=1,
)
