"""Changes to the bytes of files that are already written."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..datasets.draft import Form
from ..kinds import MutationKind, pick

PLACES = ["footer", "page header", "pages", "anywhere", "magic"]
CHANGES = ["flip", "set", "zero", "cut", "insert", "remove", "repeat"]


def damage(
    directory: Path, file: str, place: str, change: str, at: int, count: int, value: int
) -> None:
    """Change a file's bytes at one place; ``at`` counts from that place's start, around it."""
    path = directory / file
    if not path.is_file():
        return
    content = bytearray(path.read_bytes())
    start, stop = stretch(path, bytes(content), place, at)
    if stop > start:
        changed(content, start + at % (stop - start), change, count, value)
        path.write_bytes(content)


def stretch(path: Path, content: bytes, place: str, at: int) -> tuple[int, int]:
    """Where the bytes of ``place`` lie in a parquet file."""
    whole = (0, len(content))
    if place == "magic":
        return max(0, len(content) - 8), len(content)
    if place == "footer" and len(content) >= 12:
        length = struct.unpack("<I", content[-8:-4])[0]
        return max(0, len(content) - 8 - length), len(content) - 8
    try:
        chunks = _chunks(path)
    except (pa.ArrowException, OSError, ValueError):
        return whole
    if place == "anywhere" or not chunks:
        return whole
    start, size = chunks[(at >> 10) % len(chunks)]
    return (start, start + min(size, 24)) if place == "page header" else (start, start + size)


def _chunks(path: Path) -> list[tuple[int, int]]:
    metadata = pq.read_metadata(path)
    found = []
    for group in range(metadata.num_row_groups):
        for index in range(metadata.row_group(group).num_columns):
            chunk = metadata.row_group(group).column(index)
            start = chunk.data_page_offset
            if chunk.dictionary_page_offset is not None:
                start = min(start, chunk.dictionary_page_offset)
            found.append((start, chunk.total_compressed_size))
    return found


def changed(content: bytearray, at: int, change: str, count: int, value: int) -> None:
    """Change bytes in place."""
    if change == "flip":
        content[at] ^= 1 << value % 8
    elif change == "set":
        content[at] = value
    elif change == "zero":
        content[at : at + count] = bytes(len(content[at : at + count]))
    elif change == "cut":
        del content[at:]
    elif change == "insert":
        content[at:at] = bytes([value]) * count
    elif change == "remove":
        del content[at : at + count]
    else:
        content[at:at] = content[at : at + count]


def drawn_change(random: np.random.Generator) -> dict[str, Any]:
    return {
        "change": pick(random, CHANGES[:2] * 4 + CHANGES),
        "at": int(random.integers(1 << 30)),
        "count": int(random.integers(1, 17)),
        "value": int(random.integers(256)),
    }


def byte_kinds(form: Form) -> list[MutationKind]:
    """The damages to files of one form."""

    def draw(random: np.random.Generator) -> dict[str, Any]:
        place = pick(random, PLACES[:3] * 3 + PLACES)
        return {"file": pick(random, form.files), "place": place, **drawn_change(random)}

    return [MutationKind("damage", damage, draw)]
