"""Two dataset directories and the logs of runs on them, from files to findings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dataloader.loader import ONCE_MB
from ...dataloader.open_loader import open_loader
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter
from ...foundation.ranks import Ranks
from ...parallel.steps.sample_batch import SampleBatch
from ...schemas.channels import HISTORY_TIME_INTERVALS, LABEL, NEGATIVE_HISTORY, POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.known_keys import domain_of, note_of, other_meanings
from ...training.evaluation.scored_rows import TEST_SCORES, ScoredRows
from ..request_log import LoggedFile, logged_files
from .drift_findings import (
    LENGTHS,
    SCORES,
    Array,
    DriftBounds,
    FeatureDrift,
    SeenColumns,
    compare,
    values_finding,
)
from .drift_page import Curves

if TYPE_CHECKING:
    from merlin.schema import ColumnSchema

ROWS_PER_BATCH = 16_384


def see_columns(
    dataset: DatasetDirectory,
    mapping: str,
    rows: int,
    left_out: Collection[str],
    reporter: Reporter,
) -> SeenColumns:
    """Count what the first rows of a mapping hold; of either layout, the samples that are read.

    Negative histories are drawn, and are left out.
    """
    channels = dataset.channels
    label = channels[LABEL][0]
    drawn = {*channels.get(NEGATIVE_HISTORY, ()), *left_out}
    history = next(iter(channels.get(POSITIVE_HISTORY, ())), None)
    read = [name for name in dataset.schema.column_names if name not in drawn]
    names = [name for names in channels.values() for name in names if name in read]
    more = [name for name in (label, history) if name is not None and name not in names]
    columns_read = [*names, *more]
    feed = open_loader(
        dataset, mapping, columns_read, ROWS_PER_BATCH, Ranks(), data_memory_mb=ONCE_MB
    )
    domains = {name: domain_of(dataset.schema[name]) for name in names}
    largest = {name: domain[1] for name, domain in domains.items() if domain is not None}
    counts = {name: np.zeros(last + 1, np.int64) for name, last in largest.items()}
    seen = SeenColumns(counts=counts)
    lists = {name for name in names if dataset.schema[name].is_list}
    intervals = channels.get(HISTORY_TIME_INTERVALS, [])
    numbers: dict[str, list[Array]] = {
        name: [] for name in names if name not in largest and name != label
    }
    lengths: list[Array] = []
    total = min(rows, feed.plan(0).rows)
    with reporter.phase(f"counting {dataset.path.name}", total) as report:
        for given in feed:
            batch = SampleBatch(*given)
            count = min(total - seen.rows, len(batch.labels))
            columns = {name: values.numpy()[:count] for name, values in batch.columns.items()}
            seen.clicks += int((batch.labels.numpy()[:count] > 0.5).sum())
            for name, of_ids in seen.counts.items():
                values = columns[name]
                values = values[values > 0] if name in lists else values
                of_ids += np.bincount(values, minlength=len(of_ids))
            mask = None if history is None else columns[history] > 0
            if mask is not None:
                lengths.append(mask.sum(axis=1))
            for name, parts in numbers.items():
                parts.append(one_number_each(columns[name], mask if name in intervals else None))
            seen.rows += count
            report(count, count)
            if seen.rows == total:
                feed.stop()
                break
    seen.numbers = {name: np.concatenate(parts) for name, parts in numbers.items()}
    if lengths:
        seen.lengths = np.concatenate(lengths)
    return seen


def one_number_each(values: Array, mask: Array | None) -> Array:
    """Make one number of each value: of a vector its length, of a history each position's."""
    if values.ndim == 1:
        return values.astype(np.float32)
    if mask is not None:
        return values[mask].astype(np.float32)
    return np.asarray(np.linalg.norm(values.astype(np.float64), axis=1).astype(np.float32))


@dataclass(frozen=True)
class Side:
    """One of two sides that are compared."""

    columns: SeenColumns
    """Of requests, a user and a history count once for each event, candidates one by one."""
    metadata: dict[str, Any]
    """What it is, as JSON can hold it."""
    scores: Array | None
    hashed: bool = False
    """Whether hashes stand in place of users, in any of the requests."""


def see_requests(
    reference: DatasetDirectory,
    directory: Path,
    events: int,
    left_out: Collection[str],
    reporter: Reporter,
) -> Side:
    """Count what the newest events hold."""
    files = logged_files(directory)
    for file in files:
        _refuse_other_meanings(
            other_meanings(file.ids, reference.schema, reference.path),
            f"{file.path} cannot be compared with {reference.path}, which should be the dataset "
            f"that version {file.version} was trained on, or one that grew from it",
        )
    found: dict[str, list[Array]] = {}
    lengths: list[int] = []
    scores: list[Array] = []
    hashed = False
    channels, schema = reference.channels, reference.schema
    intervals = {*channels.get(HISTORY_TIME_INTERVALS, ())}
    first = next(iter(channels.get(POSITIVE_HISTORY, ())), None)
    with reporter.phase("counting requests", events) as report:
        for file, event in _newest(files, events):
            try:
                hashed |= isinstance(event["user"], str)
                for name, values in _columns(event).items():
                    if name in schema.column_names and name not in left_out:
                        flat = _flat(values, schema[name], name in intervals)
                        found.setdefault(name, []).append(flat)
                if first is not None:
                    lengths.append(len(event["histories"][first]))
                scores.append(np.asarray(event["scores"], np.float32).reshape(-1))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise MerlinSimError(
                    f"{file.path}: expected events as they were logged. Received: {error!r}"
                ) from error
            report(1, 1)
    columns = SeenColumns(labelled=False, lengths=np.array(lengths, np.int64))
    for name, parts in found.items():
        values = np.concatenate(parts)
        domain = domain_of(schema[name])
        if domain is None:
            columns.numbers[name] = values.astype(np.float32)
        else:
            columns.counts[name] = _counted(values, name, domain[1])
    of_all = np.concatenate([np.zeros(0, np.float32), *scores])
    columns.rows = len(of_all)
    if not len(of_all):
        raise MerlinSimError(
            f"{directory}: expected logged events with candidates; there are none."
        )
    versions = sorted({file.version for file in files})
    metadata = {"path": str(directory), "events": len(scores), "versions": versions}
    return Side(columns, metadata, of_all, hashed)


def _refuse_other_meanings(problems: Sequence[str], message: str) -> None:
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise MerlinSimError(f"{message}:\n{lines}")


def _newest(
    files: Sequence[LoggedFile], events: int
) -> Iterator[tuple[LoggedFile, Mapping[str, Any]]]:
    left = events
    for file in reversed(files):
        of_file = list(file.events())[-left:]
        yield from ((file, event) for event in of_file)
        left -= len(of_file)
        if left <= 0:
            return


def _columns(event: Mapping[str, Any]) -> dict[str, Any]:
    user = {} if isinstance(event["user"], str) else event["user"]
    return {**user, **event["targets"], **event["histories"]}


def _flat(values: Any, column: ColumnSchema, is_interval: bool) -> Array:
    """Make numbers of values as of a dataset's: of a vector its length, of a list its keys."""
    found = np.asarray(values, np.float64)
    if domain_of(column) is not None:
        found = found[found != 0] if column.is_list else found
    elif found.ndim == 2 and not is_interval:
        return np.asarray(np.linalg.norm(found, axis=1))
    return found.reshape(-1)


def _counted(values: Array, name: str, largest: int) -> Array:
    ids = values.astype(np.int64)
    if len(ids) and ((ids != values).any() or ids.min() < 0 or ids.max() > largest):
        raise MerlinSimError(f"{name}: expected logged ids from 0 to {largest:,}")
    return np.bincount(ids, minlength=largest + 1)


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of two datasets."""

    findings: list[FeatureDrift]
    notes: list[str]
    """What could not be compared, a sentence each."""
    metadata: dict[str, Any]
    curves: Curves


@dataclass(frozen=True)
class Drift:
    """How a dataset is compared with what came after it."""

    mapping: str
    rows: int
    """How many rows, or events, at most."""
    left_out: Sequence[str]
    bounds: DriftBounds
    reporter: Reporter

    def compare(
        self,
        reference: DatasetDirectory,
        new: DatasetDirectory | Path,
        scores: Path | None,
        new_scores: Path | None,
    ) -> Comparison:
        """Compare a dataset with a newer one, of the same ids or more, or with logged requests.

        Scores are those of results directories; None to compare none. Requests have theirs.
        """
        is_dataset = isinstance(new, DatasetDirectory)
        names = set(reference.schema.column_names)
        if isinstance(new, DatasetDirectory):
            _check_left_out(self.left_out, names | set(new.schema.column_names))
            _refuse_other_meanings(
                other_meanings(note_of(reference), new.schema, new.path),
                f"{new.path} cannot be compared with {reference.path}: preprocess it with the "
                "vocabularies of that one (--fitted), as they are or grown",
            )
        else:
            _check_left_out(self.left_out, names)
        found, later = (None if path is None else _scores(path) for path in (scores, new_scores))
        if isinstance(new, DatasetDirectory):
            newer = self._see(new, later)
        else:
            newer = see_requests(reference, new, self.rows, self.left_out, self.reporter)
        older = self._see(reference, found)
        findings, curves = _findings(older, newer, self.bounds)
        notes = []
        if alone := sorted(older.columns.columns ^ newer.columns.columns):
            where = "in one of the datasets alone" if is_dataset else "not in the requests"
            notes.append(f"{', '.join(alone)}: {where}")
        if newer.hashed:
            notes.append("users were hashed, and are not compared")
        metadata = {"reference": older.metadata, "new": newer.metadata, "mapping": self.mapping}
        return Comparison(findings, notes, metadata, curves)

    def _see(self, dataset: DatasetDirectory, scores: Array | None) -> Side:
        seen = see_columns(dataset, self.mapping, self.rows, self.left_out, self.reporter)
        metadata = {
            "path": str(dataset.path),
            "fingerprint": fingerprint(dataset),
            "rows": seen.rows,
        }
        return Side(seen, metadata, scores)


def _check_left_out(left_out: Sequence[str], names: set[str]) -> None:
    unknown = [name for name in left_out if name not in names]
    if unknown:
        raise MerlinSimError(
            f"`leave_out` should name columns. Received: {', '.join(unknown)}; there are "
            f"{', '.join(sorted(names))}"
        )


def _findings(
    older: Side, newer: Side, bounds: DriftBounds
) -> tuple[list[FeatureDrift], dict[str, tuple[Array, Array]]]:
    """Compare what both hold; give what can be drawn of it too."""
    reference, new = older.columns, newer.columns
    findings = list(compare(reference, new, bounds))
    curves: dict[str, tuple[Array, Array]] = {}
    if len(reference.lengths) and len(new.lengths):
        curves[LENGTHS.capitalize()] = reference.lengths, new.lengths
    if older.scores is not None and newer.scores is not None:
        findings.append(values_finding("score", SCORES, older.scores, newer.scores, bounds))
        curves[SCORES.capitalize()] = older.scores, newer.scores
    return findings, curves


def _scores(results: Path) -> Array:
    path = results / TEST_SCORES
    if not path.is_file():
        raise MerlinSimError(f"{results}: expected {TEST_SCORES}, which --save_scores writes.")
    scores = ScoredRows.read(path).scores
    if not len(scores):
        raise MerlinSimError(f"{path}: expected scores of at least one row.")
    if not np.isfinite(scores).all():
        raise MerlinSimError(f"{path}: expected click probabilities. Received: one is no number")
    return scores
