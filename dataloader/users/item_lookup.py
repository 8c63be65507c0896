"""The item table in memory: the features of items by id, and what negatives are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from ...schemas.item_table import ItemTable
from ...schemas.users_files import COUNT, ID
from ...schemas.users_layout import UsersLayout
from ..data_error import READ_ERRORS, DataError
from ..item_check import check_items
from .drawing import Drawing


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
            MerlinSimError: Naming the file, the row and the column where a value cannot be.
        """
        try:
            names = list(dict.fromkeys([ID, COUNT, *layout.item_features]))
            table = pq.read_table(path, columns=names)
        except READ_ERRORS as error:
            raise DataError(f"{path} cannot be read as parquet: {error}") from error
        check_items(path, table, layout.item_features, largest, layout.negatives)
        items = ItemTable(path)
        kinds = [np.int32 if last < 2**31 else np.int64 for last in largest[1:]]
        features = (
            items.feature(name).astype(kind)
            for name, kind in zip(layout.item_features, kinds, strict=True)
        )
        return cls(Drawing.of(items.population(layout.negatives)), tuple(features))
