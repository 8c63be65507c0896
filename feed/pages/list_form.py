"""How parquet stores a list column: what the levels of its values mean, and their type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ENCODINGS = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
CODECS = {"SNAPPY", "GZIP", "ZSTD", "BROTLI"}
STORED = {"INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}


@dataclass(frozen=True)
class ListForm:
    """How a list column is stored: what its levels mean, the type of its values."""

    list_level: int
    """The smallest definition level of a list."""
    element_level: int
    """The smallest definition level of an element."""
    present_level: int
    """The definition level of an element that has a value."""
    kind: np.dtype[Any]
    stored: np.dtype[Any]


def list_form(
    field: pa.Field, column: pq.ParquetColumnSchema, chunk: pq.ColumnChunkMetaData
) -> ListForm | None:
    """Say how a column is stored, or None where it is not a list that is read here."""
    kind = field.type
    if not (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ):
        return None
    values = kind.value_type
    if not (pa.types.is_signed_integer(values) or values in (pa.float32(), pa.float64())):
        return None
    present = int(column.max_definition_level)
    optional = int(kind.value_field.nullable)
    known = (
        column.max_repetition_level == 1
        and present == 1 + optional + int(field.nullable)
        and chunk.physical_type in STORED
        and set(chunk.encodings) <= ENCODINGS
        and chunk.compression in CODECS | {"UNCOMPRESSED"}
    )
    if not known:
        return None
    kind = np.dtype(values.to_pandas_dtype())
    stored = np.dtype(STORED[chunk.physical_type])
    return ListForm(int(field.nullable), present - optional, present, kind, stored)


def value_bounds(chunk: pq.ColumnChunkMetaData) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value that a column promises, if it does."""
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None or not statistics.has_min_max:
        return None
    return statistics.min, statistics.max
