"""Requests of ids: checked one by one, merged into one batch, its scores dealt out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.batch_names import OFFSETS, VALUES
from ..limits import Limits, RequestError
from ..servables.served_columns import Column, ServedColumns, Tensors


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

    Raises:
        RequestError: Naming the input, what was expected and what came.
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
    for column in (*columns.of_user, *columns.of_target, *columns.lists):
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
        wanted in (-1, length) for wanted, length in zip(shape, array.shape, strict=True)
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
    tensors: Tensors, column: Column, columns: ServedColumns, rows: int, limits: Limits
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


def _check_values(tensors: Tensors, column: Column) -> None:
    """Look whether ids are in their table, and numbers are some."""
    name = column.name + VALUES if column.name + VALUES in tensors else column.name
    values, largest = tensors[name], column.largest_id
    if largest is None:
        wrong, expected = ~np.isfinite(values), "numbers"
    else:
        wrong, expected = (values < 0) | (values > largest), f"ids from 0 to {largest}"
    if wrong.any():
        raise RequestError(f"{name}: expected {expected}, received {values[wrong].flat[0]}")
