"""Parts that all synthesizers share: power laws, keys, and lines of raw files."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ALPHA = 1.45
"""Of keys in the published synthetic data."""
Integers = npt.NDArray[np.int64]


def open_raw(path: Path, compress: bool) -> IO[bytes]:
    """Open a file, or ``<path>.gz``, for writing: the same lines are the same bytes."""
    if not compress:
        return open(path, "wb")
    compressed = path.with_name(path.name + ".gz")
    return cast("IO[bytes]", gzip.GzipFile(compressed, "wb", compresslevel=1, mtime=0))


def write_lines(file: IO[bytes], parts: Sequence[str | pa.Array]) -> None:
    """Join texts and columns into lines, a line a row, and write them."""
    lines = pc.binary_join_element_wise(*parts, "")
    _, offsets, letters = lines.buffers()
    ends = np.frombuffer(offsets, np.int32, len(lines) + 1)
    file.write(memoryview(letters)[ends[0] : ends[-1]])


def numbered(prefix: str, numbers: Integers, digits: int = 0) -> pa.Array:
    """Make keys of at least so many digits.

    >>> numbered("A", np.array([12]), 4).to_pylist()
    ['A0012']
    """
    texts = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), digits, "0")
    return pc.binary_join_element_wise(prefix, texts, "")


def draw_ranks(most: int, random: np.random.Generator, rows: int) -> Integers:
    """Draw ranks 1..most with a chance of about rank ** -ALPHA.

    >>> ranks = draw_ranks(1000, np.random.default_rng(0), 10_000)
    >>> int(ranks.min()), bool(np.mean(ranks == 1) > 0.2), bool(ranks.max() > 500)
    (1, True, True)
    """
    power = 1 - ALPHA
    last = float(most + 1) ** power
    ranks = (random.random(rows) * (last - 1) + 1) ** (1 / power)
    drawn: Integers = np.minimum(ranks.astype(np.int64), most)
    return drawn
