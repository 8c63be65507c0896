"""Batches of any length, cut into calls of the model that bound its memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...foundation.batch_names import OFFSETS, VALUES
from ..servables.served_columns import ServedColumns, Tensors


def candidate_parts(tensors: Tensors, columns: ServedColumns, most: int) -> Iterator[Tensors]:
    """Cut the candidates of one user; the user goes along with each part.

    Args:
        tensors: The inputs of the signature for one user.
        columns: The servable's columns.
        most: Candidates of a part.
    """
    names = [column.name for column in columns.of_target]
    rows = len(tensors[names[0]])
    for begin in _starts(rows, most):
        yield {**tensors, **{name: tensors[name][begin : begin + most] for name in names}}


def row_parts(tensors: Tensors, columns: ServedColumns, most: int) -> Iterator[Tensors]:
    """Cut rows that each have their own user; arguments as in :func:`candidate_parts`."""
    rows = len(tensors[columns.targets[0].name])
    lists = {column.name for column in columns.lists} if columns.is_ragged else set()
    for begin in _starts(rows, most):
        end = min(begin + most, rows)
        part: Tensors = {}
        for name in lists:
            offsets = tensors[name + OFFSETS][begin : end + 1]
            part[name + VALUES] = tensors[name + VALUES][offsets[0] : offsets[-1]]
            part[name + OFFSETS] = (offsets - offsets[0]).astype(np.int32)
        for column in (*columns.of_user, *columns.of_target, *columns.lists):
            if column.name not in lists:
                part[column.name] = tensors[column.name][begin:end]
        yield part


def _starts(rows: int, most: int) -> range:
    """Where parts begin; no rows are one empty part."""
    return range(0, max(rows, 1), most)
