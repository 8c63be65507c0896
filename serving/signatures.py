"""The inputs of a SavedModel's signatures: made of events, checked, merged, cut. No TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..foundation.batch_names import OFFSETS, VALUES
from ..foundation.requests import RequestError
from .encoder import EncodedEvent, Ids
from .limits import Limits
from .servable import ServedColumn, ServedColumns, Tensors

ROWS_PER_CALL = 4096
"""Rows that a model is given at once, which bounds its memory."""
HISTORIES_PER_CALL = 64
"""Rows of histories that are summed up at once."""
Scores = npt.NDArray[np.float32]
"""Click probabilities, one for each row or candidate."""
Entry = TypeVar("Entry")


def plain_batch(events: Sequence[EncodedEvent], columns: ServedColumns) -> Tensors:
    """One row for each candidate of each event, the user repeated beside it."""
    targets = {
        column.name: np.concatenate([event.targets[column.name] for event in events])
        for column in columns.of_target
    }
    counts = np.array([event.candidate_count for event in events])
    return {**user_batch(events, columns, counts), **targets}


def one_user_batch(event: EncodedEvent, columns: ServedColumns) -> Tensors:
    """The user in one row, the candidates in one row each."""
    return {**user_batch([event], columns), **event.targets}


def user_batch(
    events: Sequence[EncodedEvent],
    columns: ServedColumns,
    counts: npt.NDArray[np.int64] | None = None,
) -> Tensors:
    """The user's columns alone: ``counts`` rows for each event, or one."""
    if counts is None:
        counts = np.ones(len(events), np.int64)
    tensors: Tensors = {
        column.name: np.repeat(
            np.concatenate([event.users[column.name] for event in events]), counts, axis=0
        )
        for column in columns.of_user
    }
    for column in columns.lists:
        rows = [event.histories[column.name] for event in events]
        tensors |= _lists(column.name, rows, counts, columns)
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
    for index, row in enumerate(rows):
        if len(row):
            padded[index, -len(row) :] = row
    return {name: np.repeat(padded, counts, axis=0)}


def history_rows(histories: Sequence[Ids], columns: ServedColumns) -> tuple[list[Ids], list[int]]:
    """Cut histories, column by column, into rows of as many positions as a model reads.

    Returns the rows, at least one of each history, and where each history's begin.
    """
    rows: list[Ids] = []
    starts = []
    for history in histories:
        starts.append(len(rows))
        for begin in _starts(len(history[columns.histories[0].name]), columns.longest):
            end = begin + columns.longest
            rows.append({name: ids[begin:end] for name, ids in history.items()})
    return rows, starts


def history_parts(rows: Sequence[Ids], columns: ServedColumns) -> Iterator[Tensors]:
    """Batch rows of histories alone, some at a time."""
    for begin in _starts(len(rows), HISTORIES_PER_CALL):
        some = rows[begin : begin + HISTORIES_PER_CALL]
        once = np.ones(len(some), np.int64)
        part: Tensors = {}
        for column in columns.histories:
            part |= _lists(column.name, [row[column.name] for row in some], once, columns)
        yield part


def candidate_parts(tensors: Tensors, columns: ServedColumns, most: int) -> Iterator[Tensors]:
    """Cut the candidates of one user; the user goes along with each part."""
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
        for column in columns.all:
            if column.name not in lists:
                part[column.name] = tensors[column.name][begin:end]
        yield part


def groups_of_rows(
    entries: Iterable[Entry], rows_of: Callable[[Entry], float], most: int
) -> Iterator[list[Entry]]:
    """Deal out, in order, what has at most so many rows together; what has more is alone."""
    group: list[Entry] = []
    rows = 0.0
    for entry in entries:
        rows += rows_of(entry)
        if group and rows > most:
            yield group
            group, rows = [], rows_of(entry)
        group.append(entry)
    if group:
        yield group


def _starts(rows: int, most: int) -> range:
    """Where parts begin; no rows are one empty part."""
    return range(0, max(rows, 1), most)


@dataclass(frozen=True)
class IdsRequest:
    """A request that the model can answer."""

    tensors: Tensors
    rows: int
    """Scores that are asked for."""
    is_one_user: bool
    """Whether one row of the user's columns goes with all candidates."""


def check_request(
    tensors: Mapping[str, object], columns: ServedColumns, limits: Limits
) -> IdsRequest:
    """Check the inputs of a request.

    The user's columns and histories have one row for each row of the target item's columns, or a
    single row that goes with all of them.
    """
    checked: Tensors = {}
    for name, (dtype, shape) in columns.inputs.items():
        checked[name] = _array(tensors.get(name), name, np.dtype(dtype), shape)
    rows = len(checked[columns.targets[0].name])
    limits.check_candidates(rows, f"{columns.targets[0].name}: rows")
    users = _user_rows(checked, columns)
    _check_rows("rows of the user's columns", users, (rows, 1))
    for column in columns.of_target:
        _check_rows(column.name, len(checked[column.name]), (rows,))
    for column in columns.of_user:
        _check_rows(column.name, len(checked[column.name]), (users,))
    for column in columns.lists:
        _check_list(checked, column, columns, users, limits)
    for column in columns.all:
        _check_values(checked, column)
    return IdsRequest(checked, rows, is_one_user=users != rows)


def merge_requests(requests: Sequence[IdsRequest], columns: ServedColumns) -> Tensors:
    """Make one batch of several requests, each with one user a row."""
    merged: Tensors = {}
    for name in columns.inputs:
        parts = [request.tensors[name] for request in requests]
        if name.endswith(OFFSETS) and name not in {column.name for column in columns.lists}:
            starts = np.cumsum([0, *(part[-1] for part in parts[:-1])])
            ends = [part[1:] + start for part, start in zip(parts, starts, strict=True)]
            merged[name] = np.concatenate([[0], *ends]).astype(np.int32)
        else:
            merged[name] = np.concatenate(parts)
    return merged


def _array(value: object, name: str, dtype: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if value is None:
        raise RequestError(f"{name}: missing")
    array = np.asarray(value)
    if array.dtype != dtype:
        raise RequestError(f"{name}: expected {dtype}, received {array.dtype}")
    fits = array.ndim == len(shape) and all(
        size in (-1, length) for size, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise RequestError(
            f"{name}: expected the shape {list(shape)}, received {list(array.shape)}"
        )
    return array


def _user_rows(tensors: Tensors, columns: ServedColumns) -> int:
    if columns.of_user:
        return len(tensors[columns.of_user[0].name])
    if not columns.histories:
        return len(tensors[columns.targets[0].name])
    first = columns.histories[0].name
    return len(tensors[first + OFFSETS]) - 1 if columns.is_ragged else len(tensors[first])


def _check_rows(name: str, rows: int, allowed: tuple[int, ...]) -> None:
    if rows not in allowed:
        expected = " or ".join(str(count) for count in dict.fromkeys(allowed))
        raise RequestError(f"{name}: expected {expected}, received {rows}")


def _check_list(
    tensors: Tensors, column: ServedColumn, columns: ServedColumns, rows: int, limits: Limits
) -> None:
    if not columns.is_ragged:
        _check_rows(column.name, len(tensors[column.name]), (rows,))
        return
    offsets, values = tensors[column.name + OFFSETS], tensors[column.name + VALUES]
    name = column.name + OFFSETS
    _check_rows(f"{name}: rows + 1", len(offsets), (rows + 1,))
    lengths = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != len(values) or (lengths < 0).any():
        raise RequestError(
            f"{name}: expected offsets from 0 to the number of values ({len(values)}), nowhere "
            f"falling, received {offsets.tolist()!s:.60}"
        )
    limits.check_history(int(lengths.max(initial=0)), column.name)
    leader = columns.lists[0].name + OFFSETS
    if not np.array_equal(offsets, tensors[leader]):
        raise RequestError(f"{name}: expected the offsets of {leader}: histories are aligned")


def _check_values(tensors: Tensors, column: ServedColumn) -> None:
    """Look whether ids are in their table, and numbers are some."""
    name = column.name + VALUES if column.name + VALUES in tensors else column.name
    values, largest = tensors[name], column.largest_id
    if largest is None:
        wrong, expected = ~np.isfinite(values), "numbers"
    else:
        wrong, expected = (values < 0) | (values > largest), f"ids from 0 to {largest}"
    if wrong.any():
        raise RequestError(f"{name}: expected {expected}, received {values[wrong].flat[0]}")
