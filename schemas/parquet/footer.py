"""The footer of a parquet file: what it says of rows and columns, or a message that names it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...foundation.problem import Problem

UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError)
"""What pyarrow raises of a file that is damaged or no parquet file at all."""


class UnreadableFooter(MerlinSimError):
    """A parquet file whose footer cannot be read, as a problem of that file."""

    def __init__(self, file: Path, error: BaseException) -> None:
        """Say which file, and why."""
        self.problem = Problem(str(file), (), "a parquet file", why(error))
        super().__init__(str(self.problem))


def read_footer(file: Path) -> tuple[pq.FileMetaData, pa.Schema]:
    """Read a parquet file's footer.

    Returns:
        The footer, and its columns as arrow has them.

    Raises:
        UnreadableFooter: Where the file cannot be read or is not parquet.
    """
    try:
        metadata = pq.read_metadata(file)
        columns = metadata.schema.to_arrow_schema()
        for field in columns:
            str(field)  # names are decoded only when they are asked for
    except UNREADABLE as error:
        raise UnreadableFooter(file, error) from error
    return metadata, columns


def why(error: BaseException) -> str:
    """Say in one line why a file could not be read.

    >>> why(FileNotFoundError(2, "No such file or directory"))
    'No such file or directory'
    """
    if isinstance(error, UnicodeDecodeError):
        return "a name that is not UTF-8"
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(text.split())[:200]
