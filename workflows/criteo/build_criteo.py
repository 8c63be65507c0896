"""From the days of a Criteo log to a dataset directory: read, graph, fit, write."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import nvtabular as nvt
import pandas as pd
from merlin.io import Dataset

from ...foundation.exceptions import MerlinSimError
from ...foundation.files import staged_directory
from ...foundation.process_wide import quiet_merlin
from ...foundation.progress import Reporter, Silence
from ...schemas.dataset import write_documents
from ...schemas.feature_spec import Chunk
from ...schemas.layout_names import TEST, TRAIN, VALIDATION
from ...schemas.merlin_schema import to_feature_spec
from ..frames import frame_to_arrow
from ..ops.workflow import fitting_on
from ..parquet_files import columns_with_few_ids, write_samples_file
from ..rules import ALL_ROWS, fitted_on_in_words
from ..schedulers import Scheduler, SingleProcess
from ..text_lines import FAIL, BadRows, LineBlock, bad_rows_of, line_blocks
from .click_graph import (
    CriteoRules,
    click_workflow,
    keys_operator,
    raw_schema,
    save_clicks,
)
from .criteo_columns import COLUMNS, KEY_COLUMNS
from .criteo_log import BlockRead, RawPart, read_block


@dataclass(frozen=True)
class Span:
    """Rows of one file that belong together."""

    mapping: str
    begin: int
    end: int


@dataclass(frozen=True)
class DaySplit:
    """The split of a log whose files follow one another in time.

    As published, the first half of the last file validates and its second half tests.
    """

    validation_files: tuple[str, ...] = ()
    """Names of files that validate as a whole; of the others the last tests as a whole."""
    validation_share: float = 0.0
    """Share of all rows that validate: those before the test's."""
    test_share: float = 0.0
    """Share of all rows that test: the last. 0 for the split by files."""

    def __post_init__(self) -> None:
        shares = (self.validation_share, self.test_share)
        if not all(0 <= share < 1 for share in shares) or sum(shares) >= 1:
            raise MerlinSimError(
                "`validation_share` and `test_share` should be at least 0 and together below 1. "
                f"Received: {self.validation_share} and {self.test_share}."
            )
        if self.validation_share and not self.test_share:
            raise MerlinSimError("`validation_share` needs a `test_share`. Received: none.")
        if self.validation_files and self.test_share:
            raise MerlinSimError(
                "Either `validation_files` or `test_share` should be given. Received: both."
            )

    @property
    def goes_by_files(self) -> bool:
        """Whether the files' names settle what is trained on, not their numbers of rows."""
        return not self.test_share

    def trained_on(self, files: Sequence[str]) -> list[bool]:
        """Return of each file whether all of its rows are trained on; for a split by files."""
        unknown = sorted(set(self.validation_files) - set(files))
        if unknown:
            raise MerlinSimError(
                f"`validation_files` should be some of {', '.join(files)}. "
                f"Received: {', '.join(unknown)}."
            )
        others = [name for name in files if name not in self.validation_files]
        if len(others) < 2:
            raise MerlinSimError(
                "Nothing would be left to train on: the last file tests. More files are needed, "
                f"or a `test_share` of the rows. Received: {', '.join(files)}."
            )
        return [name in others[:-1] for name in files]

    def spans(self, files: Sequence[str], rows: Sequence[int]) -> list[list[Span]]:
        """Cut each file's rows: a list for each file."""
        if not self.goes_by_files:
            return self._by_shares(rows)
        spans = []
        for name, count, trains in zip(files, rows, self.trained_on(files), strict=True):
            if trains or name in self.validation_files:
                spans.append([Span(TRAIN if trains else VALIDATION, 0, count)])
            elif self.validation_files:
                spans.append([Span(TEST, 0, count)])
            else:
                half = count // 2
                spans.append([Span(VALIDATION, 0, half), Span(TEST, half, count)])
        return spans

    def _by_shares(self, rows: Sequence[int]) -> list[list[Span]]:
        total = sum(rows)
        test = total - round(total * self.test_share)
        validation = test - round(total * self.validation_share)
        borders = {TRAIN: (0, validation), VALIDATION: (validation, test), TEST: (test, total)}
        spans, first = [], 0
        for count in rows:
            within = {
                mapping: (max(begin - first, 0), min(end - first, count))
                for mapping, (begin, end) in borders.items()
            }
            spans.append([Span(m, *span) for m, span in within.items() if span[0] < span[1]])
            first += count
        return spans


WORK = ".work"
MAPPINGS = (TRAIN, VALIDATION, TEST)
ROWS_PER_COUNT = 1 << 20
"""How many rows a task counts, in as many files as that takes."""


@dataclass
class CriteoSummary:
    """Numbers of what a run read, kept and wrote."""

    read: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    """Keys that have ids of their own."""
    rare: int = 0
    """How often keys were seen that have none."""
    rows: dict[str, int] = field(default_factory=dict)
    bad_rows: list[BadRows] = field(default_factory=list)
    bytes: int = 0
    fitted_on: str | None = None
    """The rows that ids were fitted on; None where they are those of a fitted workflow."""

    def lines(self) -> list[str]:
        """Report what was read, kept and written, a sentence a line."""
        return [
            *(bad.describe() for bad in self.bad_rows if bad.count),
            f"{self.read:,} rows read; {sum(self.kept.values()):,} keys have ids of their own, "
            f"others, too rare, were seen {self.rare:,} times",
            "cardinalities: " + ", ".join(f"{n} {k + 1:,}" for n, k in self.kept.items()),
            *([] if self.fitted_on is None else [fitted_on_in_words(self.fitted_on)]),
            *([] if self.rows.get(VALIDATION) else ["nothing validates"]),
            "rows: " + ", ".join(f"{name} {count:,}" for name, count in self.rows.items()),
            f"{self.bytes / max(1, sum(self.rows.values())):.0f} bytes per row",
        ]


@dataclass(frozen=True)
class CriteoBuilder:
    """Builds a dataset directory of a log's files, the oldest first."""

    files: Sequence[Path]
    rules: CriteoRules
    split: DaySplit = field(default_factory=DaySplit)
    scheduler: Scheduler = field(default_factory=SingleProcess)
    reporter: Reporter = field(default_factory=Silence)
    on_bad_rows: str = FAIL

    def build(
        self, output: Path, *, fitted: nvt.Workflow | None = None, overwrite: bool = False
    ) -> CriteoSummary:
        """Build ``output``, whole or not at all; with the ids of ``fitted``, of the same rules."""
        names = [path.name for path in self.files]
        if self.split.goes_by_files:
            self.split.trained_on(names)  # says what is wrong with it before any work
        blocks = [block for path in self.files for block in line_blocks(path) if block.size]
        summary = CriteoSummary()
        with staged_directory(output, overwrite=overwrite, say=self.reporter.say) as directory:
            work = directory / WORK
            (work / "rows").mkdir(parents=True)
            parts = self._read(work / "rows", blocks, names, summary)
            workflow = fitted
            if workflow is None:
                workflow = click_workflow(self.rules, work)
                summary.fitted_on = self.rules.fit_on
                counted = MAPPINGS if self.rules.fit_on == ALL_ROWS else (TRAIN,)
                self._fit(workflow, [part for mapping in counted for part in parts[mapping]])
                summary.rare = sum(map(keys_operator(workflow).count_left_out, KEY_COLUMNS))
            op = keys_operator(workflow)
            summary.kept = {name: len(op.keys(name)) for name in KEY_COLUMNS}
            files = self._write(directory, parts, workflow, summary)
            chunks = {m: (Chunk("parquet", COLUMNS, tuple(names)),) for m, names in files.items()}
            spec = to_feature_spec(workflow.output_schema)
            write_documents(directory, replace(spec, source_spec=chunks))
            save_clicks(workflow, directory, self.rules)
            shutil.rmtree(work)
        return summary

    def _read(
        self, directory: Path, blocks: list[LineBlock], names: list[str], summary: CriteoSummary
    ) -> dict[str, list[RawPart]]:
        read: list[BlockRead] = []
        task = partial(read_block, directory, self.on_bad_rows)
        with self.reporter.phase("reading rows", sum(block.size for block in blocks)) as report:
            for block in self.scheduler.run(task, [*enumerate(blocks)]):
                read.append(block)
                report(block.size, sum(rows for _, rows in block.rows))
        of_file: dict[Path, list[tuple[Path, int]]] = {path: [] for path in self.files}
        read.sort(key=lambda block: block.number)
        for block in read:
            of_file[blocks[block.number].path] += block.rows
        summary.bad_rows = bad_rows_of((blocks[b.number], *bad) for b in read for bad in b.bad)
        counts = [sum(rows for _, rows in pieces) for pieces in of_file.values()]
        summary.read = sum(counts)
        if not summary.read:
            said = [one.describe() for one in summary.bad_rows if one.count]
            found = ", ".join(map(str, self.files))
            raise MerlinSimError("\n".join([f"{found}: expected rows, found none.", *said]))
        parts: dict[str, list[RawPart]] = {mapping: [] for mapping in MAPPINGS}
        spans = self.split.spans(names, counts)
        for pieces, of_day in zip(of_file.values(), spans, strict=True):
            for span in of_day:
                parts[span.mapping] += _parts_between(pieces, span.begin, span.end)
        for mapping in (TRAIN, TEST):
            if not parts[mapping]:
                raise MerlinSimError(
                    f"{', '.join(names)}: expected rows to {mapping} with, found none: "
                    f"{summary.read:,} rows in all."
                )
        return parts

    def _fit(self, workflow: nvt.Workflow, parts: list[RawPart]) -> None:
        partitions = _partitions(parts)
        meta = partitions[0][0].frame().iloc[:0]
        ddf = dd.from_map(_frame, partitions, meta=meta)
        titles = iter(("counting keys", "giving ids"))

        def compute(delayed: Sequence[Any]) -> list[Any]:
            found = []
            with self.reporter.phase(next(titles), len(delayed)) as report:
                for value in self.scheduler.compute(delayed):
                    report(1)
                    found.append(value)
            return found

        with fitting_on(workflow, compute), quiet_merlin():
            workflow.fit(Dataset(ddf, schema=raw_schema(), cpu=True))

    def _write(
        self,
        directory: Path,
        parts: dict[str, list[RawPart]],
        workflow: nvt.Workflow,
        summary: CriteoSummary,
    ) -> dict[str, Sequence[str]]:
        work = []
        files: dict[str, Sequence[str]] = {}
        for mapping, of_mapping in parts.items():
            summary.rows[mapping] = sum(part.end - part.begin for part in of_mapping)
            if of_mapping:
                (directory / mapping).mkdir()
                files[mapping] = [f"{mapping}/part.{n}.parquet" for n in range(len(of_mapping))]
                paths = [directory / name for name in files[mapping]]
                work += [*zip(of_mapping, paths, strict=True)]
        with self.reporter.phase("writing rows", summary.read) as report:
            for rows, size in self.scheduler.run(partial(encode_part, workflow), work):
                report(rows, rows)
                summary.bytes += size
        return files


def encode_part(workflow: nvt.Workflow, work: tuple[RawPart, Path]) -> tuple[int, int]:
    """Transform a part and write it to a file; returns its rows and the file's bytes."""
    part, path = work
    table = frame_to_arrow(workflow.transform(part.frame())).select(list(COLUMNS))
    write_samples_file(table, path, columns_with_few_ids(workflow.output_schema))
    return part.end - part.begin, path.stat().st_size


def _parts_between(pieces: list[tuple[Path, int]], begin: int, end: int) -> list[RawPart]:
    parts, before = [], 0
    for path, rows in pieces:
        first, last = max(begin - before, 0), min(end - before, rows)
        if first < last:
            parts.append(RawPart(path, first, last))
        before += rows
    return parts


def _partitions(parts: list[RawPart]) -> list[list[RawPart]]:
    """Gather parts to partitions of about as many rows as a task counts."""
    partitions: list[list[RawPart]] = []
    rows = ROWS_PER_COUNT
    for part in parts:
        if rows >= ROWS_PER_COUNT:
            partitions.append([])
            rows = 0
        partitions[-1].append(part)
        rows += part.end - part.begin
    return partitions


def _frame(parts: list[RawPart]) -> Any:
    return pd.concat([part.frame() for part in parts], ignore_index=True)
