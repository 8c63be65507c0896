"""The names of channels, and the channel that every dataset has.

A channel is a named group of features that a model treats alike.
"""

from __future__ import annotations

from .channel_contract import Channel

LABEL = "label"
USER_FEATURES = "user_features"
CONTEXT_FEATURES = "context_features"
TARGET_ITEM_FEATURES = "target_item_features"
POSITIVE_HISTORY = "positive_history"
NEGATIVE_HISTORY = "negative_history"
HISTORY_TIME_INTERVALS = "history_time_intervals"
TARGET_ITEM_LISTS = "target_item_lists"
USER_NUMERICAL = "user_numerical"
TARGET_ITEM_NUMERICAL = "target_item_numerical"
CATEGORICAL = "categorical"
NUMERICAL = "numerical"

UNITS_OF_INTERVALS = {
    "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0,
}  # fmt: skip
"""Units of time intervals, in seconds."""


def signs(*alternatives: str) -> tuple[frozenset[str], ...]:
    """Return sets of tags, each written as one text, as :class:`Channel` takes them."""
    return tuple(frozenset(tags.split()) for tags in alternatives)


LABEL_CHANNEL = Channel(
    fewest=1,
    most=1,
    tags=("target", "binary_classification"),
    signs=signs("label", "target", "binary_classification"),
    takes_lists=True,
    missing="no column is tagged Tags.TARGET",
)
