"""All items that a servable knows: raw keys by id, and how often each was taken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ...schemas.item_table import COUNT, ID, KEY
from ...serving.events.event import NOT_GIVEN, Item
from ...serving.servables.manifest import ServableError
from ...serving.servables.servable import Servable

MOST_POPULAR = 10_000
"""How many of the most popular items are at hand for a user of whom nothing is known."""


@dataclass(frozen=True)
class Catalogue:
    """The items of one servable."""

    domain: str
    """The item's domain of ids."""
    features: tuple[str, ...]
    """The domains of the item's further features."""
    keys: npt.NDArray[np.object_]
    """[items + 1] Raw keys by id; None for id 0."""
    counts: npt.NDArray[np.int64] | None
    """[items + 1] How often each was taken when the workflow was fitted; None if not told."""

    @classmethod
    def of(cls, servable: Servable) -> Catalogue:
        """Read the vocabulary of items.

        Raises:
            ServableError: Where the servable has none: then only ids are known.
        """
        item, *features = servable.columns.targets
        path = servable.vocabulary(item.domain)
        if path is None:
            raise ServableError(
                f"{servable.path}: expected a vocabulary of items, categories/{item.domain}.parquet"
                "; there is none. Only `merlin-sim preprocess` writes datasets with one."
            )
        names = pq.read_schema(path).names
        table = pq.read_table(path, columns=[n for n in (ID, KEY, COUNT) if n in names])
        ids = np.asarray(table[ID])
        keys = np.full(ids.max(initial=0) + 1, None, object)
        keys[ids] = table[KEY].to_numpy(zero_copy_only=False)
        counts = None
        if COUNT in names:
            counts = np.zeros(len(keys), np.int64)
            counts[ids] = np.asarray(table[COUNT])
        return cls(item.domain, tuple(f.domain for f in features), keys, counts)

    def item(self, item_id: int) -> Item:
        """Return an item as an event has it, its features to be looked up."""
        key: Any = self.keys[item_id]
        if isinstance(key, np.generic):
            key = key.item()
        return (key, *[NOT_GIVEN] * len(self.features))

    @cached_property
    def popular(self) -> npt.NDArray[np.int64]:
        """Ids of the most popular items, the most popular first; those of one count by id."""
        if self.counts is None:
            return np.empty(0, np.int64)
        order = np.argsort(-self.counts[1:], kind="stable")[:MOST_POPULAR] + 1
        taken: npt.NDArray[np.int64] = order[self.counts[order] > 0]
        return taken
