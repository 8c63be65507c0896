"""How samples lie in parquet: what readers on CPU and GPU take fastest for its size."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# Ids of items hardly repeat within a page, so dictionaries only cost time; delta encodings are
# smaller still, but the cudf of this stack's GPU container cannot read them.
ROWS_PER_GROUP = 16_384
COMPRESSION = "zstd"
COMPRESSION_LEVEL = 1


def write_samples_file(table: pa.Table, path: Path) -> None:
    """Write one file of samples."""
    pq.write_table(
        table,
        path,
        row_group_size=ROWS_PER_GROUP,
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=False,
        write_statistics=False,
    )
