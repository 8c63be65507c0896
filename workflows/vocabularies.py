"""Vocabularies: one parquet file per domain, raw keys, their ids 1..n, what is known of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError
from ..schemas.item_table import COUNT, ID, KEY, ItemTable, read_vocabulary
from ..schemas.parquet import UNREADABLE, read_footer, type_in_words, value_type, why

CATEGORIES = "categories"


@dataclass(frozen=True)
class Vocabularies:
    """The directory ``categories/`` of a dataset."""

    directory: Path

    def path(self, domain: str) -> Path:
        """Where a domain's vocabulary is."""
        return self.directory / f"{domain}.parquet"

    def keys(self, domain: str) -> pd.Series:
        """A domain's raw keys by id: the first has id 1."""
        table = read_vocabulary(self.path(domain), [ID, KEY])
        return table.sort_by(ID)[KEY].to_pandas()

    def first_key(self, domain: str) -> Any:
        """The raw key of id 1."""
        try:
            with pq.ParquetFile(self.path(domain)) as file:
                return next(file.iter_batches(1, columns=[KEY]))[KEY][0].as_py()
        except UNREADABLE as error:
            raise MerlinSimError(f"{self.path(domain)}: cannot be read ({why(error)}).") from error

    def size(self, domain: str) -> int:
        """How many ids a domain has, the padding not counted."""
        return int(pq.read_metadata(self.path(domain)).num_rows)

    def check(self, domain: str, size: int, beside: Sequence[str] = ()) -> None:
        """Look whether the file can be a vocabulary: at its footer, then at its ids and keys.

        Args:
            domain: Whose keys.
            size: How many ids are expected.
            beside: Columns that are expected beside ids and keys.

        Raises:
            MerlinSimError: With the file and what is wrong with it.
        """
        path, names = self.path(domain), (ID, KEY, *beside)
        metadata, schema = read_footer(path)
        lacking = [name for name in names if schema.names.count(name) != 1]
        if lacking:
            raise MerlinSimError(
                f"{path}: expected the columns {', '.join(names)}, each once, found "
                f"{', '.join(schema.names)}."
            )
        texts = [name for name in beside if value_type(schema.field(name).type) == pa.string()]
        if texts:
            raise MerlinSimError(
                f"{path}: column {texts[0]!r}: expected numbers or lists of them, found "
                f"{type_in_words(schema.field(texts[0]).type)}."
            )
        place = {name: schema.names.index(name) for name in (ID, KEY)}
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        ids, keys = ([group.column(place[n]).statistics for group in groups] for n in (ID, KEY))
        known = all(stated is not None and stated.has_min_max for stated in ids)
        fits = metadata.num_rows == size and pa.types.is_integer(schema.field(ID).type)
        if not (groups and known and fits) or (
            (min(stated.min for stated in ids), max(stated.max for stated in ids)) != (1, size)
        ):
            raise MerlinSimError(
                f"{path}: expected keys with the ids 1 to {size:,}, at least one, found "
                f"{metadata.num_rows:,} rows of other ids."
            )
        if any(stated is None or stated.null_count for stated in (*ids, *keys)):
            raise MerlinSimError(f"{path}: expected an id and a key in each row, found null.")
        for name in (ID, KEY):
            values = read_vocabulary(path, [name])[name]
            if pc.count_distinct(values).as_py() < size:
                counted = values.value_counts()
                counts = counted.field("counts")
                twice = counted.field("values").filter(pc.greater(counts, 1))[0].as_py()
                raise MerlinSimError(f"{path}: expected each {name} once, found {twice!r} again.")

    def items(self, domain: str) -> ItemTable:
        """The item's vocabulary with what is known of each item."""
        return ItemTable(self.path(domain))

    def write(self, domain: str, keys: pa.Array, **columns: pa.Array) -> None:
        """Write a domain's keys, all different; they get the ids 1..n."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ids = pa.array(np.arange(1, len(keys) + 1, dtype=np.int64))
        table = pa.table({ID: ids, KEY: keys, **columns})
        pq.write_table(table, self.path(domain), compression="zstd")


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
