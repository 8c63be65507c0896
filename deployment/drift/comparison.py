"""Two dataset directories, and what runs said of them, from files to findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.known_keys import note_of, other_meanings
from ...serving.requests.logged_requests import logged_files
from ...training.evaluation.scored_rows import TEST_SCORES, ScoredRows
from .distances import Array
from .drift_page import Curves
from .findings import LENGTHS, SCORES, Bounds, Finding, compare, values_finding
from .seen_columns import SeenColumns, see_columns
from .seen_requests import see_requests


@dataclass(frozen=True)
class Comparison:
    """What came of it."""

    findings: list[Finding]
    notes: list[str]
    """What could not be compared, a sentence each."""
    facts: dict[str, Any]
    """What was compared, as JSON can hold it."""
    curves: Curves
    """Values whose distributions can be drawn."""


def compare_datasets(
    reference: DatasetDirectory,
    new: DatasetDirectory,
    mapping: str,
    rows: int,
    left_out: Sequence[str],
    scores: tuple[Path, Path] | None,
    bounds: Bounds,
    narrator: Narrator,
) -> Comparison:
    """Compare two datasets.

    Args:
        reference: The older one.
        new: The newer one, of the same ids or more.
        mapping: Which rows.
        rows: How many of each at most.
        left_out: Columns that are not compared.
        scores: Results directories of runs that saved scores, the older first.
        bounds: What is too far.
        narrator: Shows progress.

    Raises:
        MerlinSimError: Where ids mean other things, columns are unknown, or scores are missing.
    """
    _check_left_out(left_out, {*reference.schema.column_names, *new.schema.column_names})
    problems = other_meanings(note_of(reference), new.schema, new.path)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise MerlinSimError(
            f"{new.path} cannot be compared with {reference.path}: preprocess it with the "
            f"vocabularies of that one (--fitted), as they are or grown:\n{lines}"
        )
    scored = None if scores is None else (_scores(scores[0]), _scores(scores[1]))
    seen = [see_columns(side, mapping, rows, left_out, narrator) for side in (reference, new)]
    findings, curves = _findings(seen[0], seen[1], scored, bounds)
    alone = sorted(seen[0].columns ^ seen[1].columns)
    notes = [f"{', '.join(alone)}: in one of the datasets alone"] if alone else []
    facts = {
        name: {"path": str(side.path), "fingerprint": fingerprint(side), "rows": counted.rows}
        for name, side, counted in zip(("reference", "new"), (reference, new), seen, strict=True)
    }
    return Comparison(findings, notes, {**facts, "mapping": mapping}, curves)


def compare_requests(
    reference: DatasetDirectory,
    requests: Path,
    mapping: str,
    rows: int,
    left_out: Sequence[str],
    scores: Path | None,
    bounds: Bounds,
    narrator: Narrator,
) -> Comparison:
    """Compare what a server logged with a dataset.

    Args:
        reference: That the served model was trained on.
        requests: Directory of the log.
        mapping: Which rows of the reference.
        rows: How many rows of it, and how many events, at most.
        left_out: Columns that are not compared.
        scores: Results directory of a run that saved scores; None to compare none.
        bounds: What is too far.
        narrator: Shows progress.

    Raises:
        MerlinSimError: Where ids mean other things, columns are unknown, or anything is missing.
    """
    _check_left_out(left_out, set(reference.schema.column_names))
    asked = see_requests(reference, logged_files(requests), rows, left_out, narrator)
    if not len(asked.scores):
        raise MerlinSimError(f"{requests}: expected logged events with candidates; there are none.")
    seen = see_columns(reference, mapping, rows, left_out, narrator)
    scored = None if scores is None else (_scores(scores), asked.scores)
    findings, curves = _findings(seen, asked.columns, scored, bounds)
    alone = sorted(seen.columns - asked.columns.columns)
    notes = [f"{', '.join(alone)}: not in the requests"] if alone else []
    if asked.hashed:
        notes.append("users were hashed, and are not compared")
    facts = {
        "reference": {
            "path": str(reference.path), "fingerprint": fingerprint(reference), "rows": seen.rows
        },
        "new": {"path": str(requests), "events": asked.events, "versions": asked.versions},
        "mapping": mapping,
    }  # fmt: skip
    return Comparison(findings, notes, facts, curves)


def _check_left_out(left_out: Sequence[str], names: set[str]) -> None:
    unknown = [name for name in left_out if name not in names]
    if unknown:
        raise MerlinSimError(
            f"`leave_out` should name columns. Received: {', '.join(unknown)}; there are "
            f"{', '.join(sorted(names))}"
        )


def _findings(
    reference: SeenColumns, new: SeenColumns, scored: tuple[Array, Array] | None, bounds: Bounds
) -> tuple[list[Finding], dict[str, tuple[Array, Array]]]:
    """Compare what both hold; give what can be drawn of it too."""
    findings = list(compare(reference, new, bounds))
    curves: dict[str, tuple[Array, Array]] = {}
    if len(reference.lengths) and len(new.lengths):
        curves[LENGTHS.capitalize()] = reference.lengths, new.lengths
    if scored is not None:
        findings.append(values_finding("score", SCORES, *scored, bounds=bounds))
        curves[SCORES.capitalize()] = scored[0], scored[1]
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
