"""The error of stored data, and what readers of damaged files raise."""

from __future__ import annotations

import pyarrow as pa

from ..foundation.exceptions import MerlinSimError

READ_ERRORS = (OSError, ValueError, LookupError, MemoryError, pa.ArrowException)
"""What reading a damaged file raises, where a name is not valid UTF-8 or a page is missing too."""


class DataError(MerlinSimError):
    """What is stored cannot be used; the message names the file and, if there is one, the row."""
