"""Inputs of `fit`, `evaluate` and `predict`, as the models take them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import merlin.io
import merlin.models.tf as mm
import tensorflow as tf

from ..dataloader.loader import Loader
from ..dataloader.open_loader import open_loader, open_scored
from ..foundation.process_wide import quiet_merlin
from ..foundation.ranks import Ranks
from ..parallel.ranks.collectives import broadcast_object
from ..schemas.dataset import DatasetDirectory
from ..schemas.layout_names import TEST, TRAIN, VALIDATION
from ..schemas.users_layout import usual_candidates
from .blocks.checks import OptionError
from .blocks.embeddings.left_padding import LeftPadding
from .loader_steps import LoaderSteps


class PaddedBatches(tf.keras.utils.Sequence):
    """The batches of a Merlin loader with their histories padded.

    Padding before the graph rather than in it gives every batch static shapes, which XLA needs,
    and lets Python warn of a history that is too long.

    Args:
        loader: A Merlin loader.
        padding: What pads.
    """

    def __init__(self, loader: mm.Loader, padding: LeftPadding) -> None:
        self.loader = loader
        self.padding = padding

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return int(self.loader.batch_size)

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, index: int) -> Any:
        """Return a batch; a Merlin loader gives the next one whatever the index."""
        columns, *rest = self.loader[index]
        return (self.padding(columns), *rest)

    def on_epoch_end(self) -> None:
        """Let the loader know that the epoch has ended."""
        self.loader.on_epoch_end()


@dataclass(frozen=True)
class Input:
    """Turns datasets and loaders into batches; leaves any other data as it is.

    An opened dataset directory is read by this package's feed, as is a loader of this package; a
    ``merlin.io.Dataset`` by Merlin's loader, since it may hold anything.
    """

    columns: Sequence[str]
    """The model's columns, label included; of a ``merlin.io.Dataset`` only these are read."""
    padding: LeftPadding
    """What pads histories."""
    batch_size: int | None
    """Samples of a batch, over all ranks; a loader has its own."""
    takes_candidates: bool
    """Whether the model takes users x candidates, of a directory with one row per user."""

    def training(
        self, data: Any, ranks: Ranks, shuffle: bool, epoch: int, steps_per_epoch: int | None
    ) -> Any:
        """Return what ``fit`` reads, of a directory this rank's part."""
        if isinstance(data, LoaderSteps):
            return data
        if isinstance(data, Loader):
            return LoaderSteps(data, steps_per_epoch=steps_per_epoch)
        if not isinstance(data, DatasetDirectory):
            return self._of_merlin(data, shuffle)
        seed = broadcast_object(random.getrandbits(31), ranks)
        columns, size = list(self.columns), self._needed_batch_size()
        candidates = self.candidates(data)
        loader = open_loader(
            *(data, TRAIN, columns, size, ranks),
            shuffle=shuffle,
            seed=seed,
            candidates=1 if size % (candidates * ranks.size) else candidates,
        )
        steps = LoaderSteps(loader, steps_per_epoch=steps_per_epoch)
        steps.start_at(epoch)
        return steps

    def stored(self, data: Any, columns: Sequence[str], mapping: str = TEST) -> Any:
        """Return what ``evaluate`` and ``predict`` read: of a directory all rows of a mapping."""
        if isinstance(data, Loader):
            return LoaderSteps(data)
        if not isinstance(data, DatasetDirectory):
            return self._of_merlin(data, shuffle=False)
        size, candidates = self._needed_batch_size(), self.candidates(data)
        loader = open_scored(data, mapping, list(columns), size, Ranks(), candidates=candidates)
        return LoaderSteps(loader)

    def validating(self, data: Any, columns: Sequence[str]) -> Any:
        """Return what ``fit`` validates by: of a directory all rows of validation."""
        if isinstance(data, DatasetDirectory) and VALIDATION not in data.spec.source_spec:
            raise OptionError(
                f"{data.path}: `validation_data` should have the mapping validation. Found: "
                f"{', '.join(data.spec.source_spec)}."
            )
        return self.stored(data, columns, VALIDATION)

    def _of_merlin(self, data: Any, shuffle: bool) -> Any:
        if hasattr(data, "to_ddf"):
            size = self._needed_batch_size()
            names = [name for name in self.columns if name in data.schema.column_names]
            schema = data.schema.select_by_name(names)
            with quiet_merlin():
                data = merlin.io.Dataset(data.to_ddf()[names], schema=schema)
            data = mm.Loader(data, batch_size=size, shuffle=shuffle)
        return PaddedBatches(data, self.padding) if isinstance(data, mm.Loader) else data

    def candidates(self, data: DatasetDirectory) -> int:
        """Return how many samples of a user stand in one row of a batch, 1 for plain rows."""
        if data.users is None or not self.takes_candidates:
            return 1
        return usual_candidates(data.users)

    def _needed_batch_size(self) -> int:
        if not self.batch_size:
            raise OptionError("`batch_size` should be set when the data is a dataset.")
        return self.batch_size
