"""The second pass: an NVTabular workflow makes rows of ids and logarithms, block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from merlin.schema import ColumnSchema, Schema

from ..engine.backend import frame_to_arrow, host_frame
from ..engine.parquet_files import columns_with_few_ids, write_samples_file
from ..engine.workflow import Workflow
from ..logs.bad_rows import FAIL
from ..logs.line_blocks import LineBlock
from ..operators.emit_dataset import EmitDataset
from ..operators.log_numbers import LogNumbers
from ..operators.look_up_keys import LookUpKeys
from .count_blocks import refuse_first
from .criteo_columns import COLUMNS, KEY_COLUMNS, LABEL_COLUMN, NUMBER_COLUMNS
from .criteo_log import DayPiece, read_days
from .day_split import Span
from .key_table import KeyTable


def criteo_workflow(tables: Mapping[str, KeyTable], schema: Schema) -> Workflow:
    """Build the workflow from rows as the log has them to rows of the dataset.

    Args:
        tables: Column -> the table of its keys.
        schema: The dataset's.
    """
    ids = list(KEY_COLUMNS) >> LookUpKeys(tables)
    logarithms = list(NUMBER_COLUMNS) >> LogNumbers()
    graph = ([LABEL_COLUMN] + ids + logarithms) >> EmitDataset(schema)
    workflow: Workflow = Workflow(graph).fit_schema(raw_schema())
    return workflow


def raw_schema() -> Schema:
    """Describe the rows of a log as they are read."""
    columns = [ColumnSchema(LABEL_COLUMN, dtype="int8")]
    columns += [ColumnSchema(name, dtype="int64") for name in KEY_COLUMNS]
    columns += [ColumnSchema(name, dtype="float32") for name in NUMBER_COLUMNS]
    return Schema(columns)


def raw_frame(piece: DayPiece, begin: int = 0, end: int | None = None) -> Any:
    """Make a frame of some of a piece's rows.

    It is pandas' on machines with a GPU too: the rows were read by the host's cores, and the tables
    that keys are looked up in lie on its disk.
    """
    rows = slice(begin, end)
    columns = {LABEL_COLUMN: pa.array(piece.labels[rows])}
    columns |= {
        name: pa.array(keys[rows]) for name, keys in zip(KEY_COLUMNS, piece.keys, strict=True)
    }
    columns |= {
        name: pa.array(numbers[rows])
        for name, numbers in zip(NUMBER_COLUMNS, piece.numbers, strict=True)
    }
    return host_frame(pa.table({name: columns[name] for name in COLUMNS}))


@dataclass(frozen=True)
class BlockWork:
    """A block, and what becomes of its rows."""

    number: int
    block: LineBlock
    spans: tuple[Span, ...]
    """Of its rows, counted from its first."""


@dataclass(frozen=True)
class EncodedBlock:
    """What came of a block."""

    number: int
    files: dict[str, list[str]]
    """Mapping -> files, relative to the dataset directory, in the order of their rows."""
    rows: dict[str, int]
    """Mapping -> rows."""
    size: int


@dataclass(frozen=True)
class EncodeBlock:
    """Reads a block, transforms it, and writes a file for each piece and mapping."""

    tables: dict[str, KeyTable]
    schema: Schema
    directory: Path
    on_bad_rows: str

    @cached_property
    def _workflow(self) -> Workflow:
        """Made once in a process: it takes longer than to parse a block."""
        return criteo_workflow(self.tables, self.schema)

    def __call__(self, work: BlockWork) -> EncodedBlock:
        """Encode a block."""
        few_ids = columns_with_few_ids(self.schema)
        files: dict[str, list[str]] = {}
        rows: dict[str, int] = {}
        before = lines = 0
        for place, piece in enumerate(read_days(work.block)):
            if piece.bad and self.on_bad_rows == FAIL:
                refuse_first(work.block, piece, lines)
            for span in work.spans:
                begin, end = max(span.begin - before, 0), min(span.end - before, piece.rows)
                if begin >= end:
                    continue
                frame = self._workflow.transform(raw_frame(piece, begin, end))
                name = f"{span.mapping}/part.{work.number}.{place}.parquet"
                write_samples_file(frame_to_arrow(frame), self.directory / name, few_ids)
                files.setdefault(span.mapping, []).append(name)
                rows[span.mapping] = rows.get(span.mapping, 0) + end - begin
            before += piece.rows
            lines += piece.lines
        return EncodedBlock(work.number, files, rows, work.block.size)
