"""What a dataset holds, whatever the order of its rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd


def rows_of(dataset: Path, mapping: str) -> Counter:
    """How often each row of a mapping stands in a dataset."""
    frame = pd.read_parquet(dataset / mapping)
    return Counter(
        tuple(tuple(value) if np.ndim(value) else value for value in row)
        for row in frame.itertuples(index=False)
    )
