"""Rows of an evaluation that are kept: for whoever compares runs, and where GAUC needs them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ...dataloader.loader import Loader
from ...foundation.ranks import Ranks
from ...ranks.collectives import send_rows
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from .scored_rows import NONE, Array, Places, ScoredRows


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


class KeptRows:
    """The rows of an evaluation, 13 bytes of each, or 37 with its place in the dataset."""

    def __init__(self) -> None:
        """Begin with none."""
        nothing = (np.bool_, np.float32, *[np.int64] * 4)
        self._batches: list[tuple[Array, ...]] = [tuple(np.empty(0, kind) for kind in nothing)]

    def add(self, labels: Array, scores: Array, users: Array | None, places: Places | None) -> None:
        """Keep the rows of a batch."""
        nothing = np.empty(0, np.int64)
        ids = np.zeros(len(labels), np.int64) if users is None else users.astype(np.int64)
        at = (nothing, nothing, nothing) if places is None else places
        self._batches.append((labels > 0.5, scores.astype(np.float32), ids, *at))

    def by_user(self, ranks: Ranks) -> ScoredRows:
        """Let the ranks share out the users, and return those of this one, user by user."""
        rows = [np.concatenate(column) for column in zip(*self._batches, strict=True)][:3]
        # Whatever pattern the ids of users have.
        mixed = rows[2].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        receivers = (mixed % np.uint64(ranks.size)).astype(np.int64)
        labels, scores, users = (send_rows(column, receivers, ranks) for column in rows)
        order = np.argsort(users, kind="stable")
        return ScoredRows(users[order], labels[order], scores[order])

    def on_first_rank(self, ranks: Ranks) -> ScoredRows | None:
        """Bring the rows of all ranks to the first one, in one order for any number of ranks."""
        rows = [np.concatenate(column) for column in zip(*self._batches, strict=True)]
        first = np.zeros(len(rows[0]), np.int64)
        labels, scores, users, *at = (send_rows(column, first, ranks) for column in rows)
        if not ranks.is_first:
            return None
        order = np.lexsort((*at, labels, scores, users))
        return ScoredRows(
            users[order], labels[order], scores[order], Places(*(column[order] for column in at))
        )


@functools.lru_cache
def come_together(files: tuple[str, ...], user: str) -> bool:
    """Tell whether the rows of each user stand one after another in some files.

    A byte for each id is kept, and a part of the column at a time.
    """
    seen = np.zeros(0, np.bool_)
    last = None
    for path in files:
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(1 << 20, columns=[user]):
                ids = np.asarray(part.column(0)).astype(np.int64)
                if not len(ids):
                    continue
                begins = ids[np.append(ids[0] != last, ids[1:] != ids[:-1])]
                most = int(ids.max()) + 1
                if most > len(seen):
                    seen = np.append(seen, np.zeros(max(most, 2 * len(seen)) - len(seen), np.bool_))
                if seen[begins].any() or len(np.unique(begins)) < len(begins):
                    return False
                seen[begins] = True
                last = ids[-1]
    return True
