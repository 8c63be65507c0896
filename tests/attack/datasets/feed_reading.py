"""What the product's feed gives of a dataset directory: the part that is judged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from merlin_sim.dataloader import stored_rows
from merlin_sim.dataloader.hand_over import aligned_array
from merlin_sim.dataloader.open_loader import open_loader, user_column
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.schemas.contracts.known_contracts import contract_named
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.fingerprint import fingerprint

POISON = 0x5B
"""A byte that no id, label or length of the attack is made of."""

Rows = dict[str, np.ndarray]


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill the feed's memory before each use, so that a row that nobody filled shows."""

    def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        array = aligned_array(shape, dtype)
        array.view(np.uint8)[...] = POISON
        return array

    with mock.patch.object(stored_rows, "aligned_array", poisoned):
        yield


def open_whole(directory: Path, model: str) -> DatasetDirectory:
    """Open a directory as a run of a model does."""
    dataset = DatasetDirectory.open(directory)
    contract_named(model).check(dataset.spec)
    for mapping in ("train", "test"):
        dataset.stored_files(mapping)
    fingerprint(dataset)
    user_column(dataset.schema)
    return dataset


def columns_of(dataset: DatasetDirectory) -> list[str]:
    names = {name for names in dataset.channels.values() for name in names}
    return [name for name in dataset.schema.column_names if name in names]


def read_batches(
    dataset: DatasetDirectory,
    mapping: str,
    batch: int,
    ranks: Ranks,
    first_step: int = 0,
    **options: Any,
) -> list[Rows]:
    """Read one epoch's batches of one rank, from a step on."""
    epoch = options.pop("epoch", 0)
    feed = open_loader(dataset, mapping, columns_of(dataset), batch, ranks, **options)
    try:
        feed.start_at(epoch, first_step)
        return [_arrays(*each) for each in iter(feed)]
    finally:
        feed.stop()


def _arrays(inputs: dict[str, Any], labels: Any, weights: Any = None) -> Rows:
    """A batch as numpy, and copied: its memory is poisoned again when it is used again."""
    rows = {name: np.array(value.numpy()) for name, value in inputs.items()}
    if weights is not None:
        rows["weight"] = np.array(weights.numpy())
    rows["\0label"] = np.array(labels.numpy())
    return rows


def joined(batches: list[Rows]) -> Rows:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def with_label(rows: Rows, label: str) -> Rows:
    """Put the label under its column's name."""
    return {label if name == "\0label" else name: array for name, array in rows.items()}
