"""Where the samples of an evaluation stand in the dataset, so that scores can be joined back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dataloader.loader import Loader
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from .scored_rows import NONE, Array, Places


@dataclass(frozen=True, eq=False)
class SamplePlaces:
    """Finds the places of a batch's samples, of a feed in the stored order."""

    feed: Loader
    item: str | None
    """The column of the target item."""

    @classmethod
    def of(cls, feed: Loader, dataset: DatasetDirectory) -> SamplePlaces:
        """Find out what the item's column is called.

        Args:
            feed: The evaluation's feed; not shuffled, and no rows left out.
            dataset: What it reads.
        """
        return cls(feed, next(iter(dataset.channels.get(TARGET_ITEM_FEATURES, ())), None))

    def of_batch(self, step: int, given: Any, samples: int, columns: Mapping[str, Array]) -> Places:
        """Find the samples of this rank's batch of a step.

        Args:
            step: Which step.
            given: What the feed gave for it.
            samples: How many samples count.
            columns: The column of the target item, of these.
        """
        items = np.full(samples, NONE)
        if self.item is not None:
            items = columns[self.item].astype(np.int64)
        rows, positions = self.feed.places(step, given)
        return Places(rows, np.full(samples, NONE) if positions is None else positions, items)
