"""Vocabularies: one parquet file per domain, raw keys and their ids 1..n, in the keys' order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...sampling.item_table import COUNT, ID, KEY, ItemTable

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
        table = pq.read_table(self.path(domain), columns=[ID, KEY])
        return table.sort_by(ID)[KEY].to_pandas()

    def first_key(self, domain: str) -> Any:
        """The raw key of id 1."""
        with pq.ParquetFile(self.path(domain)) as file:
            return next(file.iter_batches(1, columns=[KEY]))[KEY][0].as_py()

    def size(self, domain: str) -> int:
        """How many ids a domain has, the padding not counted."""
        return int(pq.read_metadata(self.path(domain)).num_rows)

    def items(self, domain: str) -> ItemTable:
        """The item's vocabulary with what is known of each item."""
        return ItemTable(self.path(domain))

    def write(self, domain: str, keys: pa.Array, **columns: pa.Array) -> None:
        """Write a domain's keys (sorted, all different); they get the ids 1..n."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ids = pa.array(np.arange(1, len(keys) + 1, dtype=np.int64))
        table = pa.table({ID: ids, KEY: keys, **columns})
        pq.write_table(table, self.path(domain), compression="zstd")

    def write_items(
        self,
        domain: str,
        keys: pa.Array,
        counts: pa.Array,
        features: dict[str, pa.Array],
        more: dict[str, pa.Array] | None = None,
    ) -> None:
        """Write the item's keys with counts and features (raw), and the features' vocabularies.

        ``more`` stands beside them as it is: numbers, vectors and lists of ids.
        """
        ids = {}
        for name, values in features.items():
            distinct = sorted_distinct(values)
            self.write(name, distinct)
            places = pc.index_in(values, distinct)
            ids[name] = pc.add(pc.cast(places, pa.int64()), 1)
        self.write(domain, keys, **{COUNT: counts}, **ids, **(more or {}))


def sorted_distinct(values: pa.Array) -> pa.Array:
    """The different values of an array in their order, nulls left out."""
    distinct = pc.unique(values).drop_null()
    return distinct.take(pc.sort_indices(distinct))
