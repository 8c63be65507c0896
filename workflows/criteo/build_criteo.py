"""From the days of a Criteo log to a dataset directory: the phases of a run, in order."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator, Silence
from ...foundation.staging import staged_directory
from ...schemas.dataset import write_documents
from ...schemas.translation.merlin_schema import to_merlin_schema
from ..engine.schedulers import Scheduler, SingleProcess
from ..logs.bad_rows import FAIL, BadRows
from ..logs.line_blocks import LineBlock
from ..vocabularies.vocabulary import CATEGORIES
from .count_blocks import BlockCount, CountBlock, CountedKeys, choose_part_bits
from .criteo_columns import KEY_COLUMNS
from .criteo_log import day_blocks
from .criteo_spec import criteo_spec
from .day_split import TEST, TRAIN, VALIDATION, DaySplit, Span
from .encode_blocks import BlockWork, EncodeBlock, EncodedBlock
from .fitted_criteo import CriteoRules, FittedCriteo, write_fitted
from .key_table import KeyTable
from .rank_keys import RankKeys

WORK = ".work"
ALL = "all"
NOTHING = (0, 0)
Spans = dict[int, tuple[int, int] | None]
"""Block -> between which of its rows keys are counted; None for all."""


@dataclass
class CriteoSummary:
    """What a run did, in numbers."""

    read: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    rare: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    bad_rows: list[BadRows] = field(default_factory=list)
    bytes: int = 0

    def lines(self) -> list[str]:
        """Tell what was read, kept and written, a sentence a line."""
        return [
            *(bad.describe() for bad in self.bad_rows if bad.count),
            f"{self.read:,} rows read; {sum(self.kept.values()):,} keys have ids of their own, "
            f"{sum(self.rare.values()):,} are too rare",
            "cardinalities: " + ", ".join(f"{n} {k + 1:,}" for n, k in self.kept.items()),
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
    narrator: Narrator = field(default_factory=Silence)
    on_bad_rows: str = FAIL

    @property
    def names(self) -> list[str]:
        """The files' names."""
        return [path.name for path in self.files]

    def build(
        self, output: Path, *, fitted: FittedCriteo | None = None, overwrite: bool = False
    ) -> CriteoSummary:
        """Build ``output``; it appears whole or not at all.

        Args:
            output: The dataset directory.
            fitted: Take these ids instead of giving new ones; keys without one get id 0.
            overwrite: Replace a directory that holds something.
        """
        if self.split.goes_by_files:
            self.split.trained_on(self.names)  # says what is wrong with it before any work
        blocks = day_blocks(list(self.files))
        summary = CriteoSummary()
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as directory:
            work = directory / WORK
            (work / "counts").mkdir(parents=True)
            (work / "tables").mkdir()
            (directory / CATEGORIES).mkdir()
            rows, tables = self._give_ids(directory, work, blocks, fitted, summary)
            self._write_rows(directory, blocks, rows, tables, summary)
            shutil.rmtree(work)
            rules = self.rules if fitted is None else fitted.rules
            write_fitted(directory, summary.kept, rules)
        return summary

    def _give_ids(
        self,
        directory: Path,
        work: Path,
        blocks: list[LineBlock],
        fitted: FittedCriteo | None,
        summary: CriteoSummary,
    ) -> tuple[list[int], dict[str, KeyTable]]:
        """Give every key its id; returns each block's rows beside."""
        if fitted is not None:
            spans: Spans = dict.fromkeys(range(len(blocks)), NOTHING)
            rows, _ = self._count("counting rows", work, blocks, spans, summary)
            return rows, self._take_ids(directory, work, fitted, summary)
        if self.rules.count_in == ALL:
            spans = dict.fromkeys(range(len(blocks)), None)
        elif self.split.goes_by_files:
            trains = dict(zip(self.files, self.split.trained_on(self.names), strict=True))
            spans = {n: None if trains[b.path] else NOTHING for n, b in enumerate(blocks)}
        else:
            spans = dict.fromkeys(range(len(blocks)), NOTHING)
            rows, _ = self._count("counting rows", work, blocks, spans, summary)
            spans = dict(enumerate(map(_trained_on, self._block_spans(blocks, rows))))
        rows, counted = self._count("counting keys", work, blocks, spans, summary)
        return rows, self._rank(directory, work, counted, summary)

    def _count(
        self, title: str, work: Path, blocks: list[LineBlock], spans: Spans, summary: CriteoSummary
    ) -> tuple[list[int], CountedKeys]:
        """Read all blocks; returns each one's rows, and where the counts of their keys are."""
        task = CountBlock(work / "counts", choose_part_bits(blocks), self.on_bad_rows)
        arguments = [(number, block, spans[number]) for number, block in enumerate(blocks)]
        counts: list[BlockCount] = []
        with self.narrator.phase(title, sum(block.size for block in blocks)) as report:
            for count in self.scheduler.run(task, arguments):
                report(count.size, count.rows)
                counts.append(count)
        counts.sort(key=lambda count: count.block)
        summary.read = sum(count.rows for count in counts)
        summary.bad_rows = _bad_rows(blocks, counts)
        if not summary.read:
            lines = [bad.describe() for bad in summary.bad_rows if bad.count]
            names = ", ".join(map(str, self.files))
            raise MerlinSimError("\n".join([f"{names}: expected rows, found none.", *lines]))
        files = tuple(name for count in counts for name in count.files)
        counted = CountedKeys(task.directory, task.part_bits, files)
        return [count.rows for count in counts], counted

    def _rank(
        self, directory: Path, work: Path, counted: CountedKeys, summary: CriteoSummary
    ) -> dict[str, KeyTable]:
        tables = work / "tables"
        rank = RankKeys(counted, directory / CATEGORIES, tables)
        arguments = list(zip(KEY_COLUMNS, self.rules.thresholds, strict=True))
        found = {}
        with self.narrator.phase("giving ids", len(arguments)) as report:
            for ranked in self.scheduler.run(rank, arguments):
                report(1, ranked.kept)
                found[ranked.column] = ranked
        shutil.rmtree(counted.directory)
        summary.kept = {name: found[name].kept for name in KEY_COLUMNS}
        summary.rare = {name: found[name].rare for name in KEY_COLUMNS}
        return {name: KeyTable(tables, name) for name in KEY_COLUMNS}

    def _take_ids(
        self, directory: Path, work: Path, fitted: FittedCriteo, summary: CriteoSummary
    ) -> dict[str, KeyTable]:
        summary.kept = dict(fitted.kept)
        arguments = [(name, work / "tables") for name in KEY_COLUMNS]
        found = {}
        with self.narrator.phase("taking ids over", len(arguments)) as report:
            for table in self.scheduler.run(fitted.make_table, arguments):
                report(1, fitted.kept[table.column])
                found[table.column] = table
                file = fitted.vocabulary(table.column)
                shutil.copyfile(file, directory / CATEGORIES / file.name)
        return found

    def _block_spans(self, blocks: list[LineBlock], rows: list[int]) -> list[list[Span]]:
        """Cut each block's rows: a list for each block, counted from its first row."""
        of_file = dict.fromkeys(self.files, 0)
        begins = []
        for block, count in zip(blocks, rows, strict=True):
            begins.append(of_file[block.path])
            of_file[block.path] += count
        of_files = self.split.spans(self.names, list(of_file.values()))
        spans_of = dict(zip(self.files, of_files, strict=True))
        return [
            [
                Span(span.mapping, max(span.begin - begin, 0), min(span.end - begin, count))
                for span in spans_of[block.path]
                if span.begin < begin + count and span.end > begin
            ]
            for block, begin, count in zip(blocks, begins, rows, strict=True)
        ]

    def _write_rows(
        self,
        directory: Path,
        blocks: list[LineBlock],
        rows: list[int],
        tables: Mapping[str, KeyTable],
        summary: CriteoSummary,
    ) -> None:
        spans = self._block_spans(blocks, rows)
        schema = to_merlin_schema(criteo_spec(summary.kept, {}))
        for mapping in (TRAIN, VALIDATION, TEST):
            (directory / mapping).mkdir()
        encode = EncodeBlock(dict(tables), schema, directory, self.on_bad_rows)
        arguments = [
            BlockWork(number, block, tuple(of_block))
            for number, (block, of_block) in enumerate(zip(blocks, spans, strict=True))
        ]
        done: list[EncodedBlock] = []
        with self.narrator.phase("writing rows", sum(block.size for block in blocks)) as report:
            for encoded in self.scheduler.run(encode, arguments):
                report(encoded.size, sum(encoded.rows.values()))
                done.append(encoded)
        done.sort(key=lambda encoded: encoded.number)
        files: dict[str, list[str]] = {}
        for mapping in (TRAIN, VALIDATION, TEST):
            named = [name for encoded in done for name in encoded.files.get(mapping, ())]
            summary.rows[mapping] = sum(encoded.rows.get(mapping, 0) for encoded in done)
            if named:
                files[mapping] = named
            else:
                (directory / mapping).rmdir()
        for mapping in (TRAIN, TEST):
            if mapping not in files:
                raise MerlinSimError(
                    f"{', '.join(self.names)}: expected rows to {mapping} with, found none: "
                    f"{summary.read:,} rows in all."
                )
        write_documents(directory, criteo_spec(summary.kept, files))
        summary.bytes = sum(path.stat().st_size for path in directory.glob("*/part.*.parquet"))


def _trained_on(spans: list[Span]) -> tuple[int, int]:
    found = [(span.begin, span.end) for span in spans if span.mapping == TRAIN]
    return found[0] if found else NOTHING


def _bad_rows(blocks: list[LineBlock], counts: list[BlockCount]) -> list[BadRows]:
    found = {block.path: BadRows(str(block.path)) for block in blocks}
    lines: dict[Any, int] = dict.fromkeys(found, 0)
    for count in counts:
        path = blocks[count.block].path
        found[path].add(count.bad, lines[path])
        lines[path] += count.lines
    return list(found.values())
