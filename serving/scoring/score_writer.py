"""Scores, written a piece at a time: JSON lines or parquet; the file appears when it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.atomic_write import open_replacing
from ...foundation.exceptions import MerlinSimError
from ..events.event import Event
from ..events.event_reader import check_ending
from ..events.row_encoder import Encoder
from .signature_inputs import Scores

WRITERS = (".jsonl", ".parquet")
LINE, SCORES = "line", "scores"


class ScoreWriter:
    """Takes scored events; one row for each: line, user, candidates, scores.

    Args:
        file: Where to write.
        encoder: Knows the columns and the types of the keys.
        as_parquet: Parquet instead of JSON lines.
    """

    def __init__(self, file: IO[bytes], encoder: Encoder, as_parquet: bool) -> None:
        """Begin the file."""
        self.file = file
        self.encoder = encoder
        self.parquet: Any = None
        if as_parquet:
            types = {LINE: pa.int64(), **encoder.output_types(), SCORES: pa.list_(pa.float32())}
            self.schema = pa.schema(list(types.items()))
            self.parquet = pq.ParquetWriter(file, self.schema)

    def write(
        self, lines: Sequence[int], events: Sequence[Event], scores: Sequence[Scores]
    ) -> None:
        """Write a piece."""
        rows = [
            self._row(line, event, of_event)
            for line, event, of_event in zip(lines, events, scores, strict=True)
        ]
        if self.parquet is not None:
            self.parquet.write_table(pa.Table.from_pylist(rows, self.schema))
            return
        for row in rows:
            self.file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    def _row(self, line: int, event: Event, scores: Scores) -> Mapping[str, Any]:
        # A float32 in its shortest form: 0.1, not 0.10000000149011612.
        numbers = [float(str(score)) for score in scores]
        return {LINE: line, **self.encoder.output_row(event), SCORES: numbers}


def check_output(path: Path, source: Path, overwrite: bool) -> None:
    """Look whether scores of the events in ``source`` can be written to ``path``."""
    check_ending("--output", path, WRITERS)
    if path.exists() and source.exists() and path.samefile(source):
        raise MerlinSimError(f"`--output` should be another file than `--input`. Received: {path}.")
    if path.exists() and not overwrite:
        raise MerlinSimError(f"{path}: exists. Name another file, or pass --overwrite.")
    if not path.parent.is_dir():
        raise MerlinSimError(f"{path}: cannot be written: there is no directory {path.parent}.")


@contextmanager
def open_scores(path: Path, encoder: Encoder) -> Iterator[ScoreWriter]:
    """Open a file of scores; it stands under its name when the block has ended well."""
    with open_replacing(path) as file:
        writer = ScoreWriter(file, encoder, path.suffix == ".parquet")
        with writer.parquet or nullcontext():
            yield writer
