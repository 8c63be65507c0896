"""The other general search unit: by category instead of by score."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..checks import OptionError, check_positive
from ..serialization import register_block
from .search_and_attention import (
    LongHistory,
    SearchOptions,
    SearchResult,
    SearchUnit,
    Target,
    register_search_unit,
)


@register_search_unit("hard")
@register_block
class HardSearchUnit(SearchUnit):
    """Hard search (SIM, https://arxiv.org/abs/2006.05639, equation 2).

        selected = the newest top_k positions it may see whose category is the target's

    It scores nothing: the attention that follows makes its own weights.

    >>> search = HardSearchUnit("category", top_k=1)
    >>> mask = tf.constant([[[False, True, True, True]]])
    >>> history = LongHistory(tf.ones([1, 4, 2]), mask, {"category": tf.constant([[7, 7, 7, 3]])})
    >>> found = search(Target(tf.ones([1, 1, 2]), {"category": tf.constant([[7]])}), history)
    >>> found.selected.numpy().tolist()
    [[[False, False, True, False]]]

    Args:
        category_feature: The target item's column that is its category.
        top_k: How many positions to keep at most.
    """

    def __init__(self, category_feature: str, top_k: int = 50, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        if not isinstance(category_feature, str):
            raise OptionError(
                "`category_feature` should name a column of the target item. "
                f"Received: `category_feature` = {category_feature!r}."
            )
        self.category_feature = category_feature
        self.top_k = check_positive("top_k", top_k)

    @classmethod
    def from_options(cls, options: SearchOptions, **kwargs: Any) -> HardSearchUnit:
        """Make the unit for ``category_feature`` and ``top_k``."""
        return cls(options.category_feature or "", options.top_k, **kwargs)

    def call(self, target: Target, history: LongHistory) -> SearchResult:
        """Search for each candidate's category in what it may see of its user's history."""
        category = target.ids[self.category_feature][:, :, tf.newaxis]  # [users, candidates, 1]
        is_same = history.ids[self.category_feature][:, tf.newaxis, :] == category
        same = history.mask & is_same  # [users, candidates, long]
        # Counted from the newest, which is the last: 1 at the newest match, 2 at the one before.
        rank = tf.cumsum(tf.cast(same, tf.int32), axis=-1, reverse=True)
        return SearchResult(same & (rank <= self.top_k))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the unit."""
        return {
            **super().get_config(),
            "category_feature": self.category_feature,
            "top_k": self.top_k,
        }
