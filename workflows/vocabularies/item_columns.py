"""What stands beside an item's key, looked at before anything is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...schemas.item_table import COUNT, read_vocabulary
from ...schemas.parquet import type_in_words

MOST_COUNTED = 1 << 53
"""Interactions with all items: more of them are no log's."""


def check_item_columns(
    path: Path,
    ids: Mapping[str, int],
    numbers: tuple[str, ...] = (),
    lists: Mapping[str, tuple[int, int]] | None = None,
    vectors: Mapping[str, int] | None = None,
) -> None:
    """Look at all values beside an item's key, which a right digest does not make right.

    Args:
        path: The item's vocabulary.
        ids: By column, how many ids its domain has.
        numbers: Columns of a number an item.
        lists: By column, how many ids its domain has and how many of them a list may hold.
        vectors: By column, how many numbers each has.

    Raises:
        MerlinSimError: With the file, the column, and what was expected.
    """
    counts = _whole(path, COUNT, _read(path, COUNT), 0, MOST_COUNTED)
    total = pc.sum(pc.cast(counts, pa.float64())).as_py()
    if total > MOST_COUNTED:
        raise _wrong(path, COUNT, f"{MOST_COUNTED:,} interactions or fewer", f"{total:,.0f}")
    for name, size in ids.items():
        _whole(path, name, _read(path, name), 1, size)
    for name in numbers:
        _plain(path, name, _read(path, name))
    for name, (size, longest) in (lists or {}).items():
        _whole(path, name, _elements(path, name, 0, longest), 1, size)
    for name, width in (vectors or {}).items():
        _plain(path, name, _elements(path, name, width, width))


def _read(path: Path, name: str) -> pa.Array:
    """One column at a time: vectors of many items take gigabytes."""
    return read_vocabulary(path, [name])[name].combine_chunks()


def _elements(path: Path, name: str, least: int, most: int) -> pa.Array:
    """All lists' elements behind each other."""
    column = _read(path, name)
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise _wrong(path, name, "a list in each row", type_in_words(kind))
    _refuse_null(path, name, column)
    found = pc.min_max(pc.list_value_length(column)).as_py()
    if found["min"] < least or found["max"] > most:
        wanted = f"{most}" if least == most else f"{least} to {most}"
        raise _wrong(path, name, f"lists of {wanted}", f"one of {_beyond(found, least)}")
    return column.flatten()


def _whole(path: Path, name: str, values: pa.Array, least: int, most: int) -> pa.Array:
    if not pa.types.is_integer(values.type):
        raise _wrong(path, name, "whole numbers", type_in_words(values.type))
    _refuse_null(path, name, values)
    found = pc.min_max(values).as_py()
    if len(values) and (found["min"] < least or found["max"] > most):
        raise _wrong(path, name, f"{least} to {most:,}", f"{_beyond(found, least):,}")
    return values


def _plain(path: Path, name: str, values: pa.Array) -> None:
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise _wrong(path, name, "numbers", type_in_words(values.type))
    _refuse_null(path, name, values)


def _beyond(found: Mapping[str, int], least: int) -> int:
    return found["min"] if found["min"] < least else found["max"]


def _refuse_null(path: Path, name: str, values: pa.Array) -> None:
    if values.null_count:
        raise _wrong(path, name, "a value in each row", "null")


def _wrong(path: Path, name: str, expected: str, found: str) -> MerlinSimError:
    return MerlinSimError(f"{path}: column {name!r}: expected {expected}, found {found}.")
