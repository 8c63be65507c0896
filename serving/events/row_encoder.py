"""Plain rows become ids: one value for each column that the model reads, and one score."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...histories.store import Reading
from ...workflows.criteo.criteo_columns import LEAST_NUMBER, LOGARITHMS, model_number
from ..limits import Limits, RequestError
from ..servables.servable import Servable
from ..servables.served_columns import Column
from .csv_cells import csv_key, number_of
from .event import Event, missing_keys, refuse_all
from .event_encoder import EncodedEvent, EventEncoder, find_lookup
from .vocabulary_lookup import Lookup


class RowEncoder:
    """Does for plain rows what :class:`~.event_encoder.EventEncoder` does for events.

        {"user": "A1", "item": "B9", "price": 2.5}

    A row has the columns that the model reads, by name: of ids the raw key, looked up in the
    dataset's vocabulary (without one the key is the id), of numbers the number as the dataset has
    it; where the dataset was made of a click log, as the log has it, None for a missing one. It is
    an event of one candidate.

    Args:
        servable: An opened servable.
        limits: What is refused.
    """

    def __init__(self, servable: Servable, limits: Limits | None = None) -> None:
        """Read the vocabularies."""
        self.columns = servable.columns
        self.limits = limits or Limits()
        self.raw_numbers = servable.takes_raw_numbers
        self.lookups: dict[str, Lookup | None] = {
            column.name: None if column.largest_id is None else find_lookup(servable, column)
            for column in self.columns.targets
        }

    def fields_for(self, found: Collection[str]) -> tuple[str, ...]:
        """Name what a row of a file needs, whatever else the file has."""
        return tuple(self.lookups)

    def from_cells(self, cells: Mapping[str, str]) -> dict[str, Any]:
        """Read the cells of a row of CSV.

        Raises:
            RequestError: Naming the first cell that cannot be read.
        """
        return {name: self._read_cell(cells[name], name) for name in self.lookups}

    def output_types(self) -> dict[str, Any]:
        """Return the columns of a file of scores, beside line and scores, with their types."""
        return {
            name: pa.float64() if lookup is None else lookup.key_type
            for name, lookup in self.lookups.items()
        }

    def output_row(self, event: Event) -> dict[str, Any]:
        """Return what a file of scores says of a row."""
        row = zip(self.lookups.items(), event.candidates[0], strict=True)
        return {
            name: float(value) if lookup is None and value is not None else value
            for (name, lookup), value in row
        }

    def parse(self, fields: Any) -> Event:
        """Check the form of a row.

        Raises:
            RequestError: Naming the columns that it lacks.
        """
        if not isinstance(fields, Mapping):
            raise RequestError(f"expected an object, received {fields!r:.60}")
        refuse_all([*missing_keys(fields, self.lookups)])
        return Event({}, [tuple(fields[name] for name in self.lookups)], [], None)

    def with_histories(self, events: Sequence[Any]) -> list[Any]:
        """Return rows as they are: they have no histories."""
        return list(events)

    def encode(self, event: Event) -> EncodedEvent:
        """Look up a row's keys.

        Raises:
            RequestError: Naming the first value that is not of its column's type.
        """
        values = event.candidates[0]
        targets = {
            column.name: np.array([self._encode(column, value)], column.dtype)
            for column, value in zip(self.columns.targets, values, strict=True)
        }
        return EncodedEvent({}, targets, {})

    def _encode(self, column: Column, value: Any) -> float:
        lookup = self.lookups[column.name]
        if lookup is not None:
            return lookup.look_up(value, column.name)
        if value is None and self.raw_numbers:
            return model_number(None)
        number = number_of(value, column.name)
        if not self.raw_numbers:
            return number
        if number < LEAST_NUMBER:
            raise RequestError(
                f"{column.name}: expected a number of at least {LEAST_NUMBER}: {LOGARITHMS} is "
                f"taken of it; received {value!r:.60}"
            )
        return model_number(number)

    def _read_cell(self, cell: str, name: str) -> Any:
        lookup = self.lookups[name]
        if lookup is not None:
            return csv_key(cell, name, lookup.is_text)
        if not cell and self.raw_numbers:
            return None
        try:
            return float(cell)
        except ValueError:
            raise RequestError(f"{name}: expected a number, received {cell!r:.60}") from None


Encoder = EventEncoder | RowEncoder
"""What makes ids of requests."""


def open_encoder(
    servable: Servable, limits: Limits | None = None, histories: Reading | None = None
) -> Encoder:
    """Open what makes a servable's requests: of events or of plain rows.

    Args:
        servable: An opened servable.
        limits: What is refused.
        histories: Has the histories of events that bring none.

    Raises:
        MerlinSimError: Where there are histories, and the model reads none, or their times too.
    """
    if histories is not None:
        servable.check_reads_histories()
    if servable.takes_rows:
        return RowEncoder(servable, limits)
    return EventEncoder(servable, limits, histories)
