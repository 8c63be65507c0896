"""Vocabularies: one parquet file per domain, raw keys and their ids 1..n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...foundation.hashing import hash_keys
from ...schemas.item_table import COUNT, ID, KEY, ItemTable, read_vocabulary
from ...schemas.parquet.footer import UNREADABLE, read_footer, why
from ...schemas.stored_types import type_in_words, value_type

CATEGORIES = "categories"


@dataclass(frozen=True)
class Vocabularies:
    """The directory ``categories/`` of a dataset."""

    directory: Path
    by_hash: tuple[str, ...] = ()
    """Domains whose new keys get ids in the order of a hash, not in that of the keys: a log may be
    sorted by them, and ids should not tell that order."""

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

    def known(self, domain: str, kind: pa.DataType) -> pa.Array:
        """A domain's keys by id, of a type that they should have; none where it has no file."""
        if not self.path(domain).exists():
            return pa.array([], kind)
        return pc.cast(pa.array(self.keys(domain)), kind)

    def new_keys(self, domain: str, values: pa.Array, known: pa.Array) -> pa.Array:
        """The different values that are not among the known ones, in the order of their ids."""
        keys = unknown_keys(values, known)
        if domain in self.by_hash:
            keys = keys.take(pa.array(np.argsort(hash_keys(keys), kind="stable")))
        return keys

    def set_counts(self, domain: str, counts: npt.NDArray[np.int64]) -> None:
        """Write how often each item was taken, by id from 0."""
        table = pq.read_table(self.path(domain))
        new = pa.array(counts[np.asarray(table[ID])])
        table = table.set_column(table.schema.get_field_index(COUNT), COUNT, new)
        pq.write_table(table, self.path(domain), compression="zstd")

    def add(self, domain: str, values: pa.Array) -> pa.Array:
        """Write a domain's keys with those of ``values`` that it lacks behind them, in their order.

        Returns:
            All keys, by id.
        """
        known = self.known(domain, values.type)
        keys = pa.concat_arrays([known, self.new_keys(domain, values, known)])
        self.write(domain, keys)
        return keys

    def add_items(
        self,
        domain: str,
        keys: pa.Array,
        counts: pa.Array,
        features: dict[str, pa.Array],
        more: dict[str, pa.Array] | None = None,
        counts_of_known: pa.Array | None = None,
        occurring: Mapping[str, pa.Array] | None = None,
    ) -> None:
        """Write items with counts and features (raw), and the features' vocabularies.

        Args:
            domain: The item's.
            keys: Items that it lacks, in their order; they get the next ids.
            counts: Of these.
            features: Of these, by name.
            more: What stands beside them as it is: numbers, vectors and lists of ids.
            counts_of_known: What the known items' counts grow by, by id.
            occurring: By name, further values that features have in samples.
        """
        ids = {}
        for name, values in features.items():
            further = (occurring or {}).get(name, values.slice(0, 0))
            places = pc.index_in(values, self.add(name, pa.concat_arrays([values, further])))
            ids[name] = pc.add(pc.cast(places, pa.int64()), 1)
        columns = {COUNT: counts, **ids, **(more or {})}
        if counts_of_known is None:
            self.write(domain, keys, **columns)
            return
        before = pq.read_table(self.path(domain)).sort_by(ID)
        place = before.schema.get_field_index(COUNT)
        before = before.set_column(place, COUNT, pc.add(before[COUNT], counts_of_known))
        together = {
            name: pa.concat_arrays(
                [before[name].combine_chunks(), column.cast(before.schema.field(name).type)]
            )
            for name, column in {KEY: keys, **columns}.items()
        }
        self.write(domain, together.pop(KEY), **together)


def unknown_keys(values: pa.Array, known: pa.Array) -> pa.Array:
    """The different values that are not among the known ones, in their order.

    >>> unknown_keys(pa.array([3, 1, 2, 3]), pa.array([2])).to_pylist()
    [1, 3]
    """
    distinct = sorted_distinct(values)
    return distinct.filter(pc.is_null(pc.index_in(distinct, known)))


def sorted_distinct(values: pa.Array) -> pa.Array:
    """The different values of an array in their order, nulls left out."""
    distinct = pc.unique(values).drop_null()
    return distinct.take(pc.sort_indices(distinct))
