"""The values of items' features that change, by item and time.

What the vocabulary of items says of an item is its last known value. A sample that is older than
that value has the one that was known at its own time; before the first one was known it has that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...schemas.users_files import ID, TIME, VALUE
from ..engine.backend import arrow_lists
from ..engine.parquet_files import write_table

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ItemValues:
    """The changes of each feature that changes; travels between processes as a path."""

    directory: Path
    """A file for each stored column."""

    def path(self, name: str) -> Path:
        """The file of a column."""
        return self.directory / f"{name}.parquet"

    def write(self, name: str, ids: Array, times: Array, values: Array) -> None:
        """Keep the changes of a column.

        Args:
            name: The stored column.
            ids: [changes] Whose each is, in their order.
            times: [changes] Whole numbers, of one item in their order.
            values: [changes] or [changes, width] What is known from then on.
        """
        stored = (
            pa.array(values)
            if values.ndim == 1
            else arrow_lists(values.reshape(-1), np.arange(len(values) + 1) * values.shape[1])
        )
        write_table(
            pa.table({ID: ids, TIME: times.astype(np.int64), VALUE: stored}), self.path(name)
        )

    def changes(self, name: str) -> bool:
        """Tell whether a column has changes."""
        return self.path(name).is_file()

    def at(self, name: str, ids: Array, times: Array, last: Array) -> Array:
        """Look up what was known of items.

        >>> import tempfile
        >>> values = ItemValues(Path(tempfile.mkdtemp()))
        >>> values.write("brand", np.array([1, 1]), np.array([5, 9]), np.array([7, 8]))
        >>> last = np.array([0, 8, 4])
        >>> items, times = np.array([1, 1, 1, 2]), np.array([4, 8, 9, 1])
        >>> values.at("brand", items, times, last).tolist()
        [7, 7, 8, 4]

        Args:
            name: The stored column.
            ids: [elements] Items.
            times: [elements] When.
            last: By item, its last known value.
        """
        found = last[ids]
        values, places = self._changes(name, ids, times)
        found[places >= 0] = values[places[places >= 0]]
        return found

    def is_outdated(
        self, name: str, ids: Array, times: Array, latest: Array
    ) -> npt.NDArray[np.bool_]:
        """Tell which items have another value at a time than the latest one that was learned.

        Args:
            name: The stored column.
            ids: [elements] Items.
            times: [elements] When.
            latest: By item, the value that samples have.
        """
        values, places = self._changes(name, ids, times)
        differs = values[np.maximum(places, 0)] != latest[ids]
        differs = differs if differs.ndim == 1 else differs.any(axis=1)
        outdated: npt.NDArray[np.bool_] = (places >= 0) & differs
        return outdated

    def _changes(self, name: str, ids: Array, times: Array) -> tuple[Array, Array]:
        """All values, and of each element its place among them at a time; -1 for none."""
        table = pq.read_table(self.path(name))
        values = table[VALUE].combine_chunks()
        if not pa.types.is_primitive(values.type):
            values = np.asarray(values.flatten()).reshape(len(table), -1)
        changed, moments = np.asarray(table[ID]), np.asarray(table[TIME])
        known = np.unique(moments)
        span = len(known) + 1
        keys = changed * span + np.searchsorted(known, moments)
        wanted = ids * span + np.searchsorted(known, times, "right")
        firsts, stops = np.searchsorted(changed, ids), np.searchsorted(changed, ids, "right")
        places = np.maximum(np.searchsorted(keys, wanted) - 1, firsts)  # the first one before it
        has_any = stops > firsts
        return np.asarray(values), np.where(has_any, places, -1)
