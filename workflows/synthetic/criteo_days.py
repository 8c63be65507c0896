"""Write planted clicks as the day files of a Criteo log."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from ..criteo.rank_keys import key_texts
from .planted_clicks import Clicks, PlantedClicks, draw_clicks

ROWS_PER_WRITE = 100_000


def synthesize_days(
    directory: Path,
    planted: PlantedClicks,
    days: int,
    *,
    compress: bool = False,
    narrator: Narrator | None = None,
) -> int:
    """Write ``day_0``, ``day_1`` and so on into an existing directory.

    Args:
        directory: Where to write.
        planted: What decides the clicks.
        days: How many days.
        compress: Write ``.gz`` files.
        narrator: Shows progress.

    Returns:
        How many rows were clicked.
    """
    if days < 1:
        raise MerlinSimError(f"`days` should be a positive integer. Received: `days` = {days}.")
    clicked = 0
    narrator = narrator or Silence()
    with narrator.phase("writing days", days * planted.rows_per_day) as report:
        for day in range(days):
            path = directory / (f"day_{day}.gz" if compress else f"day_{day}")
            with _open(path) as file:
                for clicks in clicks_of_day(planted, day):
                    file.write(lines_of(clicks))
                    clicked += int(clicks.labels.sum())
                    report(len(clicks.labels), len(clicks.labels))
    return clicked


def clicks_of_day(planted: PlantedClicks, day: int) -> Iterator[Clicks]:
    """Draw a day in parts, in the order of its rows."""
    for part, first in enumerate(range(0, planted.rows_per_day, ROWS_PER_WRITE)):
        rows = min(ROWS_PER_WRITE, planted.rows_per_day - first)
        yield draw_clicks(planted, day, part, rows)


def lines_of(clicks: Clicks) -> bytes:
    """Write rows as lines: label, 13 numbers, 26 keys; nothing between tabs for a missing one."""
    columns = [pc.cast(pa.array(clicks.labels), pa.string())]
    for numbers, present in zip(clicks.numbers, clicks.has_number, strict=True):
        columns.append(pc.cast(pa.array(numbers, mask=~present), pa.string()))
    for keys in clicks.keys:
        texts = key_texts(keys.astype(np.uint32))
        columns.append(pc.if_else(pa.array(keys >= 0), texts, pa.scalar(None, pa.string())))
    options = {"null_handling": "replace", "null_replacement": ""}
    lines = pc.binary_join_element_wise(*columns, "\t", **options)
    text: str = "\n".join(lines.to_pylist())
    return text.encode() + b"\n"


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix != ".gz":
        with open(path, "wb") as plain:
            yield plain
        return
    # Without the time of writing: the same seed gives the same bytes.
    with gzip.GzipFile(path, "wb", compresslevel=1, mtime=0) as compressed:
        yield cast(IO[bytes], compressed)
