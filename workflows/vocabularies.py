"""Vocabularies: one parquet file per domain, raw keys, their ids 1..n, what is known of items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError
from ..schemas.item_table import ID, KEY, ItemTable, read_vocabulary
from ..schemas.parquet import UNREADABLE, why

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

    def items(self, domain: str) -> ItemTable:
        """The item's vocabulary with what is known of each item."""
        return ItemTable(self.path(domain))

    def write(self, domain: str, keys: pa.Array, **columns: pa.Array) -> None:
        """Write a domain's keys, all different; they get the ids 1..n."""
        self.directory.mkdir(parents=True, exist_ok=True)
        ids = pa.array(np.arange(1, len(keys) + 1, dtype=np.int64))
        table = pa.table({ID: ids, KEY: keys, **columns})
        pq.write_table(table, self.path(domain), compression="zstd")
