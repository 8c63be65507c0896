"""Encoded events become the inputs of a signature."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...foundation.batch_names import OFFSETS, VALUES
from ..events.event_encoder import EncodedEvent
from ..servables.served_columns import ServedColumns, Tensors

Scores = npt.NDArray[np.float32]
"""Click probabilities, one for each row or candidate."""


def plain_batch(events: Sequence[EncodedEvent], columns: ServedColumns) -> Tensors:
    """One row for each candidate of each event, the user repeated beside it."""
    counts = np.array([event.candidates for event in events])
    tensors: Tensors = {}
    for column in columns.of_user:
        tensors[column.name] = np.repeat(
            np.concatenate([event.users[column.name] for event in events]), counts, axis=0
        )
    for column in columns.of_target:
        tensors[column.name] = np.concatenate([event.targets[column.name] for event in events])
    for column in columns.lists:
        rows = [event.histories[column.name] for event in events]
        tensors |= _lists(column.name, rows, counts, columns)
    return tensors


def one_user_batch(event: EncodedEvent, columns: ServedColumns) -> Tensors:
    """The user in one row, the candidates in one row each."""
    tensors: Tensors = {**event.users, **event.targets}
    for column in columns.lists:
        rows = [event.histories[column.name]]
        tensors |= _lists(column.name, rows, np.array([1]), columns)
    return tensors


def user_batch(events: Sequence[EncodedEvent], columns: ServedColumns) -> Tensors:
    """One row for each event, the user's columns alone."""
    tensors: Tensors = {
        column.name: np.concatenate([event.users[column.name] for event in events])
        for column in columns.of_user
    }
    for column in columns.lists:
        rows = [event.histories[column.name] for event in events]
        tensors |= _lists(column.name, rows, np.ones(len(events), np.int64), columns)
    return tensors


def _lists(
    name: str,
    rows: Sequence[npt.NDArray[np.generic]],
    counts: npt.NDArray[np.int64],
    columns: ServedColumns,
) -> Tensors:
    """A list column whose rows stand there ``counts`` times each."""
    if columns.is_ragged:
        lengths = np.repeat([len(row) for row in rows], counts)
        values = [np.tile(row, count) for row, count in zip(rows, counts, strict=True)]
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return {name + VALUES: np.concatenate(values), name + OFFSETS: offsets}
    padded = np.zeros((len(rows), columns.longest), rows[0].dtype)
    for place, row in enumerate(rows):
        if len(row):
            padded[place, -len(row) :] = row
    return {name: np.repeat(padded, counts, axis=0)}
