"""The rows of parquet files in pieces, in bounded memory, safely where a file is damaged.

Arrow ends the process where it reads columns of unequal lengths together in pieces, as a damaged
page makes them. Of a whole row group it refuses them, and one column alone cannot be unequal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq


def row_pieces(
    file: pq.ParquetFile, group: int, columns: list[str], rows: int, use_threads: bool = False
) -> Iterator[pa.RecordBatch]:
    """Decode a row group: at once where it is not longer than a piece, else column by column.

    Args:
        file: The opened file.
        group: The row group.
        columns: Their names.
        rows: The rows of a piece, at most.
        use_threads: Whether columns that are decoded at once may be so side by side.

    Raises:
        pa.ArrowInvalid: Where columns have unequal lengths.
    """
    if file.metadata.row_group(group).num_rows <= rows:
        yield from file.read_row_group(group, columns=columns, use_threads=use_threads).to_batches()
        return
    readers = [file.iter_batches(rows, row_groups=[group], columns=[name]) for name in columns]
    for parts in itertools.zip_longest(*readers):
        lengths = [0 if part is None else part.num_rows for part in parts]
        if len(set(lengths)) > 1:
            short = columns[lengths.index(min(lengths))]
            raise pa.ArrowInvalid(f"column {short} has fewer rows than others")
        arrays = [  # a.b comes where a is asked for
            part.column(part.schema.names.index(name))
            for name, part in zip(columns, parts, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=columns)


def file_pieces(file: pq.ParquetFile, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Decode a file, row group by row group; see :func:`row_pieces`."""
    for group in range(file.num_row_groups):
        yield from row_pieces(file, group, columns, rows)
