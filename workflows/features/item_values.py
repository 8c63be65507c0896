"""The values of items' features that change, by item and time.

What the vocabulary of items says of an item is its last known value. A sample that is older than
that value has the one that was known at its own time; before the first one was known it has that.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
STARTS, TIMES, VALUES = "starts", "times", "values.npy"


@dataclass(frozen=True)
class ItemValues:
    """The changes of each feature that changes; travels between processes as a path."""

    directory: Path
    """For each stored column raw arrays, mapped into memory."""

    def write(self, name: str, ids: Array, times: Array, values: Array, size: int) -> None:
        """Keep the changes of a column.

        Args:
            name: The stored column.
            ids: [changes] Whose each is, in their order.
            times: [changes] Whole numbers, of one item in their order.
            values: [changes] or [changes, width] What is known from then on.
            size: The largest id.
        """
        directory = self.directory / name
        directory.mkdir(parents=True)
        counts = np.bincount(ids, minlength=size + 1)
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64).tofile(directory / STARTS)
        times.astype(np.int64).tofile(directory / TIMES)
        np.save(directory / VALUES, values)

    def changes(self, name: str) -> bool:
        """Tell whether a column has changes."""
        return (self.directory / name).is_dir()

    def at(self, name: str, ids: Array, times: Array, last: Array) -> Array:
        """Look up what was known of items.

        >>> import tempfile
        >>> values = ItemValues(Path(tempfile.mkdtemp()))
        >>> values.write("brand", np.array([1, 1]), np.array([5, 9]), np.array([7, 8]), 2)
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
        places = self._places(name, ids, times)
        has_changed = places >= 0
        values = np.load(self.directory / name / VALUES, mmap_mode="r")
        found[has_changed] = values[places[has_changed]]
        return found

    def is_outdated(self, name: str, ids: Array, times: Array) -> npt.NDArray[np.bool_]:
        """Tell which items got another value later than a time."""
        places, starts = self._places(name, ids, times), self._map(name, STARTS)
        values = np.load(self.directory / name / VALUES, mmap_mode="r")
        lasts = np.maximum(starts[ids + 1] - 1, 0)
        differs = values[np.maximum(places, 0)] != values[lasts]
        differs = differs if differs.ndim == 1 else differs.any(axis=1)
        outdated: npt.NDArray[np.bool_] = (places >= 0) & differs
        return outdated

    def _places(self, name: str, ids: Array, times: Array) -> Array:
        places: Array = _last_change(self._map(name, STARTS), self._map(name, TIMES), ids, times)
        return places

    def _map(self, name: str, array: str) -> Array:
        return np.memmap(self.directory / name / array, np.int64, "r")


@numba.njit(cache=True, nogil=True)
def _last_change(starts: Array, times: Array, ids: Array, moments: Array) -> Array:
    """The place of the last change no later than each moment, or of the first; -1 without any."""
    places = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        first = low = starts[ids[i]]
        stop = high = starts[ids[i] + 1]
        while low < high:
            middle = (low + high) >> 1
            if times[middle] <= moments[i]:
                low = middle + 1
            else:
                high = middle
        places[i] = -1 if first == stop else max(low - 1, first)
    return places
