"""Checks stored rows against the schema: types, ids, labels, and lists of one length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from merlin.dtypes import ElementType
from merlin.schema import ColumnSchema, Schema

from ..foundation.exceptions import MerlinSimError
from ..schemas.channels import known_channel, tag_names
from ..schemas.dtypes import LARGEST_NUMBER
from ..schemas.known_keys import domain_of
from ..schemas.parquet import is_list, type_in_words, value_type
from .arrow_columns import Array, Column

READ_ERRORS = (OSError, ValueError, LookupError, MemoryError, pa.ArrowException)
"""What reading a damaged file raises, where a name is not valid UTF-8 or a page is missing too."""


class DataError(MerlinSimError):
    """Stored data cannot be used; the message names the file and, if there is one, the row."""


@contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Say of a file that what is done in the block shows that it is no parquet."""
    try:
        yield
    except READ_ERRORS as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error


def list_widths(schema: Schema, ragged: bool) -> dict[str, int]:
    """Name the list columns that become dense, with their widths; also ``ragged`` ones."""
    widths = {}
    for column in schema:
        if not column.is_list:
            continue
        longest = column.shape.dims[1].max
        if column.is_ragged and not ragged:
            continue
        if longest is None or not np.isfinite(longest):
            raise MerlinSimError(
                f"column {column.name} cannot be padded: its value_count has no maximum."
            )
        widths[column.name] = int(longest)
    return widths


def binary_labels(schema: Schema) -> frozenset[str]:
    """Name the columns of labels that are 0 or 1."""
    return frozenset(
        column.name
        for column in schema
        if "target" in tag_names(column) and tag_names(column) & {"binary_classification", "binary"}
    )


def last_ids(schema: Schema) -> dict[str, int]:
    """Name the columns of ids, with the last id that each column's table has a row for."""
    return {
        column.name: domain[1]
        for column in schema
        # Not of its int_domain, which there is of columns declared as integers only.
        if (domain := domain_of(column)) is not None
    }


NUMBERS = (ElementType.Bool, ElementType.Int, ElementType.UInt, ElementType.Float)
"""What a column is declared as where its type is known."""


def require_types(origin: str, stored: pa.Schema, declared: Schema) -> None:
    """Refuse columns that are not there once, or whose type is not what the schema declares.

    Whole numbers of any width pass as whole numbers, and as numbers; labels that are 0 or 1 pass
    in any type, for their values are checked. Ids are stored as floats only where the schema says
    float (their values are checked to be whole), as truth values only where it says so.
    """
    missing = [name for name in declared.column_names if name not in stored.names]
    if missing:
        raise DataError(f"{origin} lacks the columns {', '.join(missing)}.")
    wrong = []
    for column in declared:
        count = stored.names.count(column.name)
        if count > 1:
            wrong.append(f"{origin}: one column {column.name} was expected. Received: {count}.")
            continue
        kind = stored.field(column.name).type
        kinds = _kinds(column, declared)
        is_form = is_list(kind) == column.is_list or column.dtype.element_type not in NUMBERS
        if not is_form or _numpy_kind(kind.value_type if is_list(kind) else kind) not in kinds:
            wrong.append(
                f"{origin}: column {column.name} should hold {_expected(column, kinds)}."
                f" Received: {type_in_words(kind)}."
            )
    if wrong:
        raise DataError("\n".join(wrong))


def _kinds(column: ColumnSchema, schema: Schema) -> list[str]:
    """Say in which kinds of numpy's types a column may be stored."""
    element = column.dtype.element_type
    is_id = column.name in last_ids(schema)
    if column.name in binary_labels(schema):
        return ["b", "i", "u", "f"]
    if element == ElementType.Bool:
        return ["b", "i", "u"] if is_id else ["b"]
    if element == ElementType.Float:
        return ["i", "u", "f"]
    if is_id or element in (ElementType.Int, ElementType.UInt):
        return ["i", "u"]
    return ["b", "i", "u", "f"]


def _expected(column: ColumnSchema, kinds: list[str]) -> str:
    words = "numbers" if "f" in kinds else "whole numbers" if "i" in kinds else "truth values"
    return f"lists of {words}" if column.is_list else words


def _numpy_kind(kind: pa.DataType) -> str:
    """Return the kind of the numpy type, or nothing where there are no numbers."""
    if is_list(kind):
        return ""
    kind = value_type(kind)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).kind
    return ""


Where = Callable[[int], str]
"""Names the file and the row of one of the rows that are looked at."""


class RowCheck:
    """Holds columns of rows against the Merlin schema.

    A categorical column's ``domain`` says which ids its table has rows for, from 0 to max; a column
    tagged as binary target takes 0 and 1.
    """

    def __init__(self, schema: Schema) -> None:
        self.largest = last_ids(schema)
        self.labels = binary_labels(schema)
        self.aligned = aligned_lists(schema)
        self.widths = vector_widths(schema)

    def __call__(self, name: str, column: Column, where: Where) -> None:
        """Look at the values of a column."""
        if column.missing is not None:
            raise DataError(
                f"{where(column.missing)}: column {name} holds a missing value. Received: null."
            )
        values = column.values
        if not len(values):
            return
        wrong: npt.NDArray[np.bool_] | None = None
        if name in self.largest:
            largest = self.largest[name]
            if values.dtype.kind == "f":
                whole = np.isfinite(values) & (np.floor(values) == values)
                _refuse(name, column, ~whole, "an id that is not a whole number", where)
            low, high = column.bounds or (values.min(), values.max())
            what = f"an id outside 0 to {largest}"
            if low < 0 or high > largest:
                wrong = (values < 0) | (values > largest)
        elif name in self.labels:
            what = "a label other than 0 and 1"
            if values.dtype != np.bool_:
                wrong = (values != 0) & (values != 1)
        elif values.dtype.kind == "f":
            what = "a number that is not finite in 32 bits"
            if not (-LARGEST_NUMBER <= values.min() and values.max() <= LARGEST_NUMBER):
                wrong = ~(np.abs(values) <= LARGEST_NUMBER)
        if wrong is not None:
            _refuse(name, column, wrong, what, where)

    def lengths(self, lengths: dict[str, Array], where: Where) -> None:
        """Look at how long the lists of each column are."""
        for name in self.widths.keys() & lengths.keys():
            width = self.widths[name]
            wrong = lengths[name] != width
            if wrong.any():
                row = int(np.argmax(wrong))
                raise DataError(
                    f"{where(row)}: column {name} should hold vectors of {width} numbers."
                    f" Received: {lengths[name][row]}."
                )
        for first, *others in self.aligned:
            for other in others if lengths.keys() >= {first, *others} else []:
                wrong = lengths[first] != lengths[other]
                if wrong.any():
                    row = int(np.argmax(wrong))
                    raise DataError(
                        f"{where(row)}: {first} and {other} should be equally long."
                        f" Received: {lengths[first][row]} and {lengths[other][row]} elements."
                    )


def _refuse(
    name: str, column: Column, wrong: npt.NDArray[np.bool_], what: str, where: Where
) -> None:
    if wrong.any():
        position = int(np.argmax(wrong))
        raise DataError(
            f"{where(column.row_of(position))}: column {name} holds {what}."
            f" Received: {column.values[position]}."
        )


def vector_widths(schema: Schema) -> dict[str, int]:
    """Name the columns of vectors, with their length."""
    channels = {column.name: map(known_channel, tag_names(column)) for column in schema}
    return {
        name: int(schema[name].value_count.max)
        for name, found in channels.items()
        if schema[name].is_list and any(channel and channel.takes_vectors for channel in found)
    }


def aligned_lists(schema: Schema) -> list[list[str]]:
    """Return the columns of lists that must be equally long in a row, group by group."""
    groups: dict[str, list[str]] = {}
    for column in schema:
        for tag in sorted(tag_names(column)):
            channel = known_channel(tag)
            if channel is not None and channel.is_list:
                groups.setdefault(channel.aligned_with or tag, []).append(column.name)
    return list(groups.values())
