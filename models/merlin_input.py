"""What `fit`, `evaluate` and `predict` are given, as the models take it."""

from __future__ import annotations

from typing import Any

import merlin.io
import merlin.models.tf as mm
import tensorflow as tf
from merlin.schema import Schema

from ..schemas.dataset import Dataset
from .blocks.checks import OptionError
from .blocks.left_padding import LeftPadding


class PaddedBatches(tf.keras.utils.Sequence):
    """The batches of a Merlin loader with their histories padded.

    Padding before the graph rather than in it gives every batch static shapes, which XLA needs,
    and lets a history that is too long be told of in Python.

    Args:
        loader: A Merlin loader.
        padding: What pads.
    """

    def __init__(self, loader: mm.Loader, padding: LeftPadding) -> None:
        """Take a loader as it is."""
        self.loader = loader
        self.padding = padding

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return int(self.loader.batch_size)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.loader)

    def __getitem__(self, index: int) -> Any:
        """Return a batch; a Merlin loader gives the next one whatever the index."""
        columns, *rest = self.loader[index]
        return (self.padding(columns), *rest)

    def on_epoch_end(self) -> None:
        """Tell the loader that the epoch has ended."""
        self.loader.on_epoch_end()


def to_batches(
    data: Any,
    mapping: str,
    schema: Schema,
    padding: LeftPadding,
    batch_size: int | None,
    shuffle: bool = False,
) -> Any:
    """Turn a dataset or a Merlin loader into padded batches; leave any other data as it is.

    Args:
        data: An opened dataset directory, a ``merlin.io.Dataset``, a Merlin loader, or anything
            else that Keras takes.
        mapping: Which files of an opened directory to read, ``"train"`` or ``"test"``.
        schema: The model's columns, label included; of a dataset only these are read.
        padding: What pads.
        batch_size: Rows of a batch; a loader has its own.
        shuffle: Whether to shuffle a dataset's rows.
    """
    if isinstance(data, Dataset):
        files = [str(path) for path in data.files(mapping)]
        data = merlin.io.Dataset(files, engine="parquet", schema=data.schema)
    if hasattr(data, "to_ddf"):
        if not batch_size:
            raise OptionError("`batch_size` should be set when the data is a dataset.")
        data = mm.Loader(_only(data, schema), batch_size=batch_size, shuffle=shuffle)
    return PaddedBatches(data, padding) if isinstance(data, mm.Loader) else data


def _only(data: merlin.io.Dataset, schema: Schema) -> merlin.io.Dataset:
    names = [name for name in schema.column_names if name in data.schema.column_names]
    return merlin.io.Dataset(data.to_ddf()[names], schema=data.schema.select_by_name(names))
