"""How often a key was seen and taken before a moment: of all users, never at or after it.

A count or a rate over the whole log would tell a sample what became of it. So of each key's events,
in the order of time, only those before the sample's own time are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ...foundation.atomic_write import write_array
from ...foundation.exceptions import MerlinSimError

Array = npt.NDArray[Any]
STARTS, SECONDS, TAKEN = "starts", "seconds", "taken"


@dataclass(frozen=True)
class EventCounts:
    """The events of each id of one domain; travels between processes as a path."""

    directory: Path
    """Raw arrays, mapped into memory."""

    def write(self, ids: Array, seconds: Array, taken: Array, size: int) -> None:
        """Keep the events.

        Args:
            ids: [events] Whose they are, from 1.
            seconds: [events] When.
            taken: [events] 1 where the item was taken.
            size: The largest id.
        """
        self.directory.mkdir(parents=True)
        order = np.lexsort((seconds, ids))
        counts = np.bincount(ids, minlength=size + 1)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        before = np.concatenate([[0], np.cumsum(taken[order])]).astype(np.int64)
        for name, values in ((STARTS, starts), (SECONDS, seconds[order]), (TAKEN, before)):
            with open(self.directory / name, "wb") as file:
                write_array(file, values)

    def before(self, ids: Array, moments: Array) -> tuple[Array, Array]:
        """Count what was there before a moment.

        >>> import tempfile
        >>> counts = EventCounts(Path(tempfile.mkdtemp()) / "item")
        >>> seconds, taken = np.array([5.0, 5, 6, 7]), np.array([1, 0, 0, 1])
        >>> counts.write(np.array([1, 2, 1, 1]), seconds, taken, 2)
        >>> [found.tolist() for found in counts.before(np.array([1, 1, 2]), np.array([7.0, 5, 9]))]
        [[2, 0, 1], [1, 0, 0]]

        Args:
            ids: [samples] Ids of the domain.
            moments: [samples] Seconds.

        Returns:
            [samples] how many events of the id came before, and in how many it was taken.
        """
        shown, clicked = _count_before(
            self._map(STARTS, np.int64), self._map(SECONDS, np.float64),
            self._map(TAKEN, np.int64), ids, moments,
        )  # fmt: skip
        return shown, clicked

    def _map(self, name: str, dtype: Any) -> Array:
        return np.memmap(self.directory / name, dtype, "r")


def refuse_counted(source: str, seconds: Any, until: float) -> None:
    """Refuse samples that encodings of a whole log count: they would see their own label.

    Args:
        source: Where the samples are from, for the message.
        seconds: [samples] When.
        until: The time of the newest row that is counted.

    Raises:
        MerlinSimError: With how many there are.
    """
    counted = int((seconds <= until).sum())
    if counted:
        raise MerlinSimError(
            f"{source}: {counted:,} of {len(seconds):,} interactions to predict are no later than "
            f"{_in_words(until)} (UTC), until when the fitted workflow counted for `encodings`: "
            "they may be among the rows counted, and would see their own label. Expected a later "
            "log. Leave such rows out, or fit anew on all rows (without `--fitted`)."
        )


def _in_words(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{seconds:,.0f} s"


@numba.njit(cache=True, nogil=True)
def _count_before(
    starts: Array, seconds: Array, taken: Array, ids: Array, moments: Array
) -> tuple[Array, Array]:
    shown = np.empty(len(ids), np.int64)
    clicked = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        start = low = starts[ids[i]]
        high = starts[ids[i] + 1]
        while low < high:
            middle = (low + high) >> 1
            if seconds[middle] < moments[i]:
                low = middle + 1
            else:
                high = middle
        shown[i] = low - start
        clicked[i] = taken[low] - taken[start]
    return shown, clicked
