"""The columns that a model reads, and rows of another day as it would be served them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...schemas.channels import HISTORY_TIME_INTERVALS, POSITIVE_HISTORY, channels_of
from ...schemas.known_keys import domain_of

if TYPE_CHECKING:
    from merlin.schema import Schema

Array = npt.NDArray[Any]
Batch = Mapping[str, Array]


@dataclass(frozen=True)
class ModelColumns:
    """What a model reads of a row."""

    names: tuple[str, ...]
    largest: Mapping[str, int]
    """Column of ids -> the last id that the model has a vector for."""
    histories: tuple[str, ...]
    """The columns of a history, all equally long; the item's is the first. None of plain rows."""
    longest: int
    """Positions of a history that the model reads."""

    @classmethod
    def of(cls, schema: Schema, names: Sequence[str]) -> ModelColumns:
        """Read them off the schema of the dataset that the model was trained on.

        Args:
            schema: With all of the dataset's columns.
            names: Those that inference reads.
        """
        channels = channels_of(schema)
        aligned = (POSITIVE_HISTORY, HISTORY_TIME_INTERVALS)
        histories = [n for channel in aligned for n in channels.get(channel, ()) if n in names]
        found = {name: domain_of(schema[name]) for name in names}
        largest = {name: domain[1] for name, domain in found.items() if domain is not None}
        longest = int(schema[histories[0]].value_count.max) if histories else 0
        return cls(tuple(names), largest, tuple(histories), longest)

    def as_served(self, batch: Batch) -> dict[str, Array]:
        """Give rows the form in which a server would give them to the model.

        Ids that the model has no vector for are 0; such an item in a history is left out, and of a
        longer history the newest positions are read.

        Args:
            batch: Of each column [rows] or, padded on the left with 0, [rows, positions].
        """
        rows = {name: self._known(name, batch[name]) for name in self.names}
        if not self.histories:
            return rows
        kept = rows[self.histories[0]] > 0
        left_out = (batch[self.histories[0]] > 0) & ~kept
        # Positions that stay move to the right end in their order, where the newest stands.
        order = np.argsort(kept, axis=1, kind="stable") if left_out.any() else None
        for name in self.histories:
            values = rows[name]
            if order is not None:
                values = np.take_along_axis(np.where(kept, values, 0), order, axis=1)
            rows[name] = _of_width(values, self.longest)
        return rows

    def _known(self, name: str, values: Array) -> Array:
        largest = self.largest.get(name)
        return values if largest is None else np.where(values > largest, 0, values)


def _of_width(values: Array, width: int) -> Array:
    missing = width - values.shape[1]
    if missing <= 0:
        return np.ascontiguousarray(values[:, -missing:] if missing else values)
    return np.pad(values, ((0, 0), (missing, 0)))
