"""Vocabularies: one parquet file per domain, raw keys, their ids 1..n, what is known of items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..foundation.exceptions import MerlinSimError
from ..schemas.item_table import COUNT, ID, KEY, ItemTable, read_vocabulary
from ..schemas.parquet import is_list, read_footer, type_in_words
from ..schemas.recency import LAST_DAY, NEVER
from .behaviour_columns import BehaviourColumns
from .feature import ITEM
from .parquet_files import write_table

WHOLE, NUMBERS = "whole numbers", "numbers"


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

    def check(self, columns: BehaviourColumns, sizes: Mapping[str, int]) -> None:
        """Look at all ids, keys and values, which a right digest does not make right."""
        for name in columns.domains:
            size = sizes.get(name, 0)
            self._check(name, ID, size, WHOLE, least=1, most=size, once=True)
            self._check(name, KEY, size, once=True)
        item, features, size = columns.item, columns.features, sizes[columns.item]
        # Draws add the counts up, in 64 bits.
        self._check(item, COUNT, size, WHOLE, most=2**62 // size)
        for name in columns.item_features:
            self._check(item, name, size, WHOLE, least=1, most=sizes[name])
        for encoding in features.encodings:
            for name in encoding.days:
                self._check(item, name, size, WHOLE, least=NEVER, most=LAST_DAY)
        totals = (name for encoding in features.encodings for name in encoding.totals)
        for name in (*features.numbers(ITEM), *totals):
            self._check(item, name, size, NUMBERS)
        for keys in features.lists:
            lengths = 0, keys.longest
            self._check(item, keys.name, size, WHOLE, least=1, most=sizes[keys.name], of=lengths)
        for vector in features.vectors:
            self._check(item, vector.name, size, NUMBERS, of=(vector.size, vector.size))

    def _check(
        self, domain: str, name: str, size: int, kind: str | None = None, **more: Any
    ) -> None:
        """Look at one column at a time: vectors of many items take gigabytes."""
        path = self.path(domain)
        where, (metadata, schema) = f"{path}, column {name!r}", read_footer(path)
        found = metadata.num_rows if schema.names.count(name) == 1 else 0
        if found != size or not size:
            raise MerlinSimError(f"{where}: expected {size:,} values, found {found:,}.")
        check_values(where, read_vocabulary(path, [name])[name], kind, **more)

    def items(self, domain: str) -> ItemTable:
        """The item's vocabulary with what is known of each item."""
        return ItemTable(self.path(domain))

    def write(self, domain: str, keys: pa.Array, **columns: pa.Array) -> None:
        """Write a domain's keys, all different; they get the ids 1..n."""
        ids = pa.array(np.arange(1, len(keys) + 1, dtype=np.int64))
        write_table(pa.table({ID: ids, KEY: keys, **columns}), self.path(domain))


def check_values(
    where: str,
    values: pa.ChunkedArray,
    kind: str | None = None,
    *,
    least: int = 0,
    most: int = 0,
    of: tuple[int, int] | None = None,
    once: bool = False,
) -> None:
    """Refuse a column with other values than expected, or without one in some row.

    ``kind`` is ``WHOLE`` numbers of ``least`` to ``most``, ``NUMBERS``, or anything if None; ``of``
    is how many a list has, at least and at most; ``once`` is for values that differ.
    """

    def refuse(expected: str, found: Any) -> MerlinSimError:
        return MerlinSimError(f"{where}: expected {expected}, found {found}.")

    if of is not None:
        if not is_list(values.type):
            raise refuse("a list in each row", type_in_words(values.type))
        lengths = pc.list_value_length(values)
        check_values(f"{where}, lengths of lists", lengths, WHOLE, least=of[0], most=of[1])
        values = pc.list_flatten(values)
    if values.null_count:
        raise refuse("a value in each row", "null")
    is_whole = pa.types.is_integer(values.type)
    if not (kind is None or is_whole or (kind == NUMBERS and pa.types.is_floating(values.type))):
        raise refuse(kind, type_in_words(values.type))
    if kind == WHOLE and len(values):
        lowest, highest = pc.min_max(values).as_py().values()
        if lowest < least or highest > most:
            raise refuse(f"{least:,} to {most:,}", f"{lowest if lowest < least else highest:,}")
    if once and pc.count_distinct(values).as_py() < len(values):
        counted = values.value_counts()
        twice = counted.filter(pc.greater(counted.field("counts"), 1))[0]["values"].as_py()
        raise refuse("each value once", f"{twice!r} again")
