"""Users of a dataset with what they took next: their clicked rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...dataloader.loader import ONCE_MB
from ...dataloader.open_loader import open_loader
from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from ...schemas.channels import (
    CONTEXT_FEATURES,
    LABEL,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory
from ...workflows.vocabularies.vocabulary import CATEGORIES, Vocabularies
from ..candidates.histories import History

ROWS_PER_BATCH = 4096
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Clicks:
    """Clicked rows, as ids."""

    histories: Ids
    """[rows, places] Items, oldest first, 0 on the left."""
    targets: Ids
    """[rows] The item that was taken."""
    users: dict[str, Ids]
    """Column -> [rows]."""

    def __len__(self) -> int:
        """How many."""
        return len(self.targets)

    def take(self, rows: Ids) -> Clicks:
        """Choose rows."""
        users = {name: ids[rows] for name, ids in self.users.items()}
        return Clicks(self.histories[rows], self.targets[rows], users)

    def in_ids(self, of_ids: Ids) -> Clicks:
        """Give items other ids: ``of_ids`` has the new id of each."""
        return Clicks(of_ids[self.histories], of_ids[self.targets], self.users)


class ClickedRows:
    """Reads the clicked rows of a dataset.

    Args:
        dataset: The opened directory.

    Raises:
        MerlinSimError: Where it is not one of behaviour.
    """

    def __init__(self, dataset: DatasetDirectory) -> None:
        """Find the columns."""
        channels = dataset.channels
        if not channels.get(POSITIVE_HISTORY) or not channels.get(TARGET_ITEM_FEATURES):
            raise MerlinSimError(f"{dataset.path}: expected users with histories of items.")
        self.dataset = dataset
        self.item = channels[TARGET_ITEM_FEATURES][0]
        self.history = channels[POSITIVE_HISTORY][0]
        self.users = [*channels.get(USER_FEATURES, ()), *channels.get(CONTEXT_FEATURES, ())]
        self.label = channels[LABEL][0]

    def batches(self, mapping: str) -> Iterator[Clicks]:
        """Give the clicked rows of ``train`` or ``test``, as stored, a batch at a time."""
        columns = [self.label, self.item, self.history, *self.users]
        size, ranks = ROWS_PER_BATCH, Ranks()
        feed = open_loader(self.dataset, mapping, columns, size, ranks, data_memory_mb=ONCE_MB)
        try:
            for batch, labels in feed:
                clicked = np.flatnonzero(labels.numpy().reshape(-1) > 0)
                read = {n: batch[n].numpy()[clicked] for n in columns if n != self.label}
                yield Clicks(
                    read[self.history].reshape(len(clicked), -1).astype(np.int64),
                    read[self.item].reshape(-1).astype(np.int64),
                    {name: read[name].reshape(-1).astype(np.int64) for name in self.users},
                )
        finally:
            feed.stop()

    def sample(self, mapping: str, most: int, seed: int) -> Clicks:
        """Draw so many clicked rows; all, where there are no more."""
        found = list(self.batches(mapping))
        if not sum(map(len, found)):
            raise MerlinSimError(f"{self.dataset.path}: {mapping} has no row with a click.")
        together = Clicks(
            np.concatenate([part.histories for part in found]),
            np.concatenate([part.targets for part in found]),
            {n: np.concatenate([part.users[n] for part in found]) for n in self.users},
        )
        chosen = np.random.default_rng(seed).permutation(len(together))[:most]
        return together.take(np.sort(chosen))

    def raw(self, clicks: Clicks) -> tuple[list[History], list[Any]]:
        """Return histories as raw keys, and the raw keys of targets."""
        schema = self.dataset.schema
        items = self.item_keys
        of_users = {n: self._keys(schema[n].int_domain.name or n) for n in self.users}
        histories = [
            History(
                {name: of_users[name][ids[row]] for name, ids in clicks.users.items()},
                [items[item] for item in clicks.histories[row] if item],
            )
            for row in range(len(clicks))
        ]
        return histories, [items[item] for item in clicks.targets]

    @cached_property
    def item_keys(self) -> list[Any]:
        """The items' raw keys by id; None for id 0."""
        return self._keys(self.dataset.schema[self.item].int_domain.name or self.item)

    def _keys(self, domain: str) -> list[Any]:
        """Return a domain's raw keys by id; None for id 0."""
        vocabularies = Vocabularies(self.dataset.path / CATEGORIES)
        if not vocabularies.path(domain).exists():
            raise MerlinSimError(
                f"{self.dataset.path}: expected a vocabulary of {domain!r}, of which raw keys are "
                "read; there is none."
            )
        return [None, *vocabularies.keys(domain).tolist()]
