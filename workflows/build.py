"""From a raw log to a dataset directory: the phases of a run, in order."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..schemas.dataset import write_documents
from ..schemas.exceptions import MerlinSimError
from ..schemas.merlin_schema import to_merlin_schema
from .bad_rows import FAIL, POLICIES, BadRows
from .columns import BehaviourColumns
from .dataset_spec import dataset_spec
from .fit_vocabularies import fit_vocabularies
from .fitted import write_fitted
from .halves import Part, count_parts, encode_all, sample_all
from .histories import Histories
from .kept_users import EVENTS, ITEMS, USERS, KeepLongUsers
from .log_source import LogSource
from .operators.explode_histories import TEST, TRAIN
from .progress import Narrator, Silence
from .rules import SampleRules
from .schedulers import Scheduler, SingleProcess
from .spill import Spill, number_of_buckets, spill_log
from .staging import staged_directory
from .vocabulary import CATEGORIES, Vocabularies

WORK = ".work"
Features = Mapping[str, tuple[pa.Array, pa.Array, str]]


@dataclass
class Summary:
    """What a run did, in numbers."""

    interactions: int = 0
    kept_interactions: int = 0
    repeated: int = 0
    users: int = 0
    dropped_users: int = 0
    domains: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    bad_rows: list[BadRows] = field(default_factory=list)
    bytes: int = 0

    def lines(self) -> list[str]:
        """Say it."""
        return [
            *(bad.describe() for bad in self.bad_rows if bad.count),
            f"{self.interactions:,} interactions read; {self.kept_interactions:,} of "
            f"{self.users:,} users kept ({self.dropped_users:,} users too short), "
            f"{self.repeated:,} of them repetitions",
            "ids: " + ", ".join(f"{name} {size:,}" for name, size in self.domains.items()),
            "rows: " + ", ".join(f"{name} {count:,}" for name, count in self.rows.items()),
            f"{self.bytes / max(1, sum(self.rows.values())):.0f} bytes per sample",
        ]


@dataclass(frozen=True)
class DatasetBuilder:
    """Builds a dataset directory of a log; see the methods for the phases."""

    source: LogSource
    rules: SampleRules
    scheduler: Scheduler = field(default_factory=SingleProcess)
    narrator: Narrator = field(default_factory=Silence)
    on_bad_rows: str = FAIL

    def build(
        self, output: Path, *, features: Features | None = None, overwrite: bool = False
    ) -> Summary:
        """Build ``output``; it appears whole or not at all.

        Args:
            output: The dataset directory.
            features: For item features that do not stand in the log: items, their values, and
                the value of items that are not among them.
            overwrite: Replace a directory that holds something.
        """
        if self.on_bad_rows not in POLICIES:
            raise MerlinSimError(
                f"`on_bad_rows` should be one of {', '.join(POLICIES)}. "
                f"Received: `on_bad_rows` = {self.on_bad_rows!r}."
            )
        summary = Summary()
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as directory:
            work = directory / WORK
            for name in (EVENTS, ITEMS, USERS):
                (work / name).mkdir(parents=True)
            given = features or {}
            buckets = self._spill(work, summary)
            self._keep_long_users(work, buckets, tuple(given), summary)
            vocabularies = Vocabularies(directory / CATEGORIES)
            self._fit(work, vocabularies, given, summary)
            histories = self._encode(work, vocabularies, summary)
            self._write_samples(directory, histories, vocabularies, summary)
            write_fitted(directory, self.columns, self.rules, summary.domains)
            shutil.rmtree(work)
        return summary

    @property
    def columns(self) -> BehaviourColumns:
        """The log's columns."""
        return self.source.columns

    def _spill(self, work: Path, summary: Summary) -> int:
        buckets = number_of_buckets(self.source.size())
        spilled = work / "spilled"
        spilled.mkdir()
        spill = Spill(self.source, spilled, buckets, self.on_bad_rows)
        with self.narrator.phase("reading interactions", self.source.size()) as report:
            results = spill_log(spill, self.scheduler.run, report)
        summary.interactions = sum(result.rows for result in results)
        blocks = self.source.blocks()
        bad_rows: dict[Path, BadRows] = {}
        lines: dict[Path, int] = {}
        for result in sorted(results, key=lambda result: result.block):
            path = blocks[result.block].path
            bad = bad_rows.setdefault(path, BadRows(str(path)))
            bad.add(result.bad, lines.get(path, 0))
            lines[path] = lines.get(path, 0) + result.lines
        summary.bad_rows += bad_rows.values()
        return buckets

    def _keep_long_users(
        self, work: Path, buckets: int, given: tuple[str, ...], summary: Summary
    ) -> None:
        keep = KeepLongUsers(
            self.columns,
            self.rules.shortest_sequence_for_user,
            work / "spilled",
            work,
            tuple(name for name in self.columns.item_features if name not in given),
        )
        with self.narrator.phase("choosing users", buckets) as report:
            for bucket in self.scheduler.run(keep, range(buckets)):
                report(1, bucket.rows)
                summary.kept_interactions += bucket.rows
                summary.repeated += bucket.repeated
                summary.users += bucket.users
                summary.dropped_users += bucket.dropped_users
        if not summary.users:
            raise MerlinSimError(
                f"No user has {self.rules.shortest_sequence_for_user} interactions or more "
                f"(`shortest_sequence_for_user`): {summary.interactions:,} interactions of "
                f"{summary.dropped_users:,} users were read, nothing is left."
            )
        shutil.rmtree(work / "spilled")

    def _fit(
        self, work: Path, vocabularies: Vocabularies, given: Features, summary: Summary
    ) -> None:
        with self.narrator.phase("fitting vocabularies", 1) as report:
            fit_vocabularies(self.columns, work, vocabularies, given)
            for name in (*self.columns.users, *self.columns.items):
                summary.domains[name] = vocabularies.size(name)
            report(1, sum(summary.domains.values()))

    def _encode(self, work: Path, vocabularies: Vocabularies, summary: Summary) -> Histories:
        encoded = work / "encoded"
        histories = Histories(work / "histories", self.columns)
        with self.narrator.phase("encoding histories", summary.users) as report:
            for rows in encode_all(
                self.columns, vocabularies, work / EVENTS, encoded, self.scheduler
            ):
                report(rows, rows)
            histories.gather(sorted(encoded.glob("*.arrow")))
        return histories

    def _write_samples(
        self, directory: Path, histories: Histories, vocabularies: Vocabularies, summary: Summary
    ) -> None:
        lengths = np.diff(histories.offsets)
        least = self.rules.shortest_sequence_for_training
        expected = {
            TRAIN: 2 * int(np.maximum(lengths - 1 - least, 0).sum()),
            TEST: 2 * len(lengths),
        }
        parts = []
        for mapping, rows in expected.items():
            (directory / mapping).mkdir()
            of = count_parts(rows)
            parts += [Part(mapping, number, of) for number in range(of)]
        files = {
            mapping: [part.file for part in parts if part.mapping == mapping]
            for mapping in expected
        }
        spec = dataset_spec(self.columns, summary.domains, self.rules.max_sequence_length, files)
        summary.rows = dict.fromkeys(expected, 0)
        with self.narrator.phase("writing samples", sum(expected.values())) as report:
            for mapping, rows in sample_all(
                histories,
                parts,
                self.rules,
                vocabularies,
                to_merlin_schema(spec),
                directory,
                self.scheduler,
            ):
                report(rows, rows)
                summary.rows[mapping] += rows
        write_documents(directory, spec)
        summary.bytes = sum(path.stat().st_size for path in directory.glob("*/part.*.parquet"))
