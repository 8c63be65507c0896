"""The item table in memory: the features of items by id, and what negatives are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ...sampling.drawing import Drawing
from ...sampling.item_table import ItemTable
from ...schemas.users_files import COUNT, ID
from ...schemas.users_layout import UsersLayout
from ..data_error import READ_ERRORS, DataError


@dataclass(frozen=True)
class ItemLookup:
    """What is known of items; some bytes an item, however many users there are."""

    drawing: Drawing
    """What negatives are drawn from."""
    features: tuple[npt.NDArray[Any], ...]
    """By item id, the ids of each feature but the item itself; 0 has 0."""

    @classmethod
    def read(cls, path: Path, layout: UsersLayout, largest: list[int]) -> ItemLookup:
        """Read the item table.

        Args:
            path: The file.
            layout: Which columns it has, and how negatives are drawn.
            largest: The last id of the item and of each further feature.

        Raises:
            DataError: Naming the file, the row and the column where a value cannot be.
        """
        try:
            table = pq.read_table(path, columns=[ID, COUNT, *layout.item_features])
        except READ_ERRORS as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        bounds = [(ID, 1, largest[0]), (COUNT, 0, 2**53)]
        names = zip(layout.item_features, largest[1:], strict=True)
        for name, low, high in [*bounds, *((name, 1, last) for name, last in names)]:
            _check(path, name, table[name].combine_chunks(), low, high)
        ids = np.asarray(table[ID])
        if len(np.unique(ids)) != largest[0]:
            raise DataError(f"{path}: column {ID} should hold each of 1 to {largest[0]} once.")
        items = ItemTable(path)
        population = items.population(layout.negatives)
        if not population.size:
            raise DataError(f"{path}: column {COUNT} holds no interaction to draw negatives from.")
        kinds = [np.int32 if last < 2**31 else np.int64 for last in largest[1:]]
        features = (
            items.feature(name).astype(kind)
            for name, kind in zip(layout.item_features, kinds, strict=True)
        )
        return cls(Drawing.of(population), tuple(features))


def _check(path: Path, name: str, column: Any, low: int, high: int) -> None:
    missing = np.asarray(column.is_null())
    values = np.asarray(column.fill_null(low))
    wrong = np.flatnonzero(missing | (values < low) | (values > high))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path}, row {row}: column {name} should hold {low} to {high}."
            f" Received: {column[row].as_py()}."
        )
