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


def keys_of(dataset: Path, domain: str) -> dict:
    """The key of each id; that of 0 is None."""
    table = pd.read_parquet(dataset / "categories" / f"{domain}.parquet")
    return {0: None, **dict(zip(table["id"], table["key"], strict=True))}


def samples_of(dataset: Path, mapping: str, label: int | None = None) -> Counter:
    """User, target, label and history of samples, by their keys in the log: who and what."""
    frame = pd.read_parquet(dataset / mapping)
    frame = frame if label is None else frame[frame["label"] == label]
    who, what = keys_of(dataset, "who"), keys_of(dataset, "what")
    return Counter(
        (who[row.who], what[row.what_trgt], row.label, tuple(what[item] for item in row.what_pos))
        for row in frame.itertuples()
    )
