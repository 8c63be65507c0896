"""How samples lie in parquet: what readers on CPU and GPU take fastest for its size."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_GROUP = 16_384
LARGEST_DICTIONARY = 1 << 16  # entries that still make a small page
# Ids of many items hardly repeat within a page, a dictionary of them costs only time. Delta
# encoding would be smaller still, but the cudf of the stack's GPU container cannot read it.
FAST_ZSTD = -3


def write_samples_file(table: pa.Table, path: Path, few_ids: Collection[str] = ()) -> None:
    """Write one file of samples.

    Args:
        table: The samples.
        path: The file.
        few_ids: Columns with at most ``LARGEST_DICTIONARY`` different ids, to be stored as
            places in a dictionary; all others are compressed.
    """
    leaves = {}
    for field in table.schema:
        is_list = pa.types.is_list(field.type) or pa.types.is_large_list(field.type)
        leaves[field.name] = f"{field.name}.list.element" if is_list else field.name
    few = {leaves[name] for name in few_ids if name in leaves}
    pq.write_table(
        table,
        path,
        row_group_size=ROWS_PER_GROUP,
        compression={leaf: "none" if leaf in few else "zstd" for leaf in leaves.values()},
        compression_level={leaf: FAST_ZSTD for leaf in leaves.values() if leaf not in few},
        use_dictionary=sorted(few),
        write_statistics=False,
    )
