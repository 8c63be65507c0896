"""All interactions with each key, of which a sample counts those before its own time.

A count or a rate over the whole log would tell a sample what became of it.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...foundation.exceptions import MerlinSimError
from ...schemas.users_files import ID, SECONDS, TAKEN
from ..engine.parquet_files import write_table

Array = npt.NDArray[Any]


def write_events(path: Path, ids: Array, seconds: Array, taken: Array) -> None:
    """Write the interactions of one domain.

    Args:
        path: The file.
        ids: [interactions] Whose they are, from 1.
        seconds: [interactions] When.
        taken: [interactions] 1 where the item was taken.
    """
    order = np.lexsort((seconds, ids))
    columns = {ID: ids, SECONDS: seconds, TAKEN: taken.astype(np.int8)}
    write_table(pa.table({name: column[order] for name, column in columns.items()}), path)


def counted_samples(source: str, counted: int, of: int, until: float) -> MerlinSimError:
    """An error for samples that encodings of a whole log count: they would see their own label.

    Args:
        source: Where the samples are from, for the message.
        counted: How many they are.
        of: How many samples there are.
        until: The time of the newest row that is counted.
    """
    return MerlinSimError(
        f"{source}: {counted:,} of {of:,} interactions to predict are no later than "
        f"{_in_words(until)} (UTC), until when the fitted workflow counted for `encodings`: "
        "they may be among the rows counted, and would see their own label. Expected a later "
        "log. Leave such rows out, or fit anew on all rows (without `--fitted`)."
    )


def _in_words(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return f"{seconds:,.0f} s"
