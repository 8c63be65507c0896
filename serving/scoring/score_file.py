"""A file of events becomes a file of scores, in pieces, whatever its length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ...foundation.progress import Narrator, Silence
from ...workflows.logs.text_lines import FAIL, BadRow, BadRows, refuse
from ..events.event import Event
from ..events.event_encoder import EncodedEvent
from ..events.event_reader import EventFile, Row
from ..events.row_encoder import Encoder
from ..limits import RequestError, UnavailableError
from .score_writer import ScoreWriter, check_output, open_scores
from .scorer import ROWS_PER_CALL, Scorer

EVENTS_PER_PIECE = 1024
EVENTS_PER_READ = 128
"""Whose histories are read together."""


@dataclass
class ScoreSummary:
    """What a run did, in numbers."""

    events: int = 0
    candidates: int = 0
    unseen_users: int = 0
    """Events whose user, in any of its keys, was not there when the workflow was fitted."""
    unseen_candidates: int = 0
    """Candidates that were not."""
    bad_rows: BadRows = field(default_factory=lambda: BadRows(""))


@dataclass
class _Piece:
    """Events read and not yet scored."""

    lines: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    encoded: list[EncodedEvent] = field(default_factory=list)
    candidates: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.events) >= EVENTS_PER_PIECE or self.candidates >= ROWS_PER_CALL


def score_file(
    scorer: Scorer,
    encoder: Encoder,
    source: Path,
    output: Path,
    *,
    on_bad_rows: str = FAIL,
    overwrite: bool = False,
    narrator: Narrator | None = None,
) -> ScoreSummary:
    """Score every event of a file.

    Args:
        scorer: The model.
        encoder: The vocabularies, and the limits of an event.
        source: Events, as :class:`~merlin_sim.serving.events.event_reader.EventFile` reads them.
        output: Scores, as :mod:`~merlin_sim.serving.scoring.score_writer` writes them.
        on_bad_rows: ``"fail"`` at the first row that cannot be scored, or ``"skip"`` such rows.
        overwrite: Replace ``output``.
        narrator: Shows progress.
    """
    summary = ScoreSummary(bad_rows=BadRows(str(source)))
    narrator = narrator or Silence()
    check_output(output, source, overwrite)
    events = EventFile(source, encoder)
    with open_scores(output, encoder) as writer:
        piece, reported = _Piece(), 0
        with narrator.phase("scoring", events.size()) as report:
            for row in _with_histories(events.rows(), encoder):
                _take(row, piece, encoder, summary, on_bad_rows)
                if piece.is_full:
                    report(row.done - reported, len(piece.events))
                    piece, reported = _score(piece, scorer, writer, summary), row.done
            report(events.size() - reported, len(piece.events))
            _score(piece, scorer, writer, summary)
    return summary


def _with_histories(rows: Iterator[Row], encoder: Encoder) -> Iterator[Row]:
    """Give rows with the histories that they do not bring, which are read some at a time."""
    while some := list(islice(rows, EVENTS_PER_READ)):
        sound = [row for row in some if not isinstance(row.fields, Exception)]
        whole = iter(encoder.with_histories([row.fields for row in sound]))
        for row in some:
            yield row if isinstance(row.fields, Exception) else replace(row, fields=next(whole))


def _take(
    row: Row,
    piece: _Piece,
    encoder: Encoder,
    summary: ScoreSummary,
    on_bad_rows: str,
) -> None:
    try:
        if isinstance(row.fields, Exception):
            raise row.fields
        event = encoder.parse(row.fields)
        encoded = encoder.encode(event)
    except (RequestError, UnavailableError) as error:
        bad = BadRow(row.line, str(error))
        if on_bad_rows == FAIL:
            raise refuse(summary.bad_rows.path, bad) from error
        summary.bad_rows.add([bad], 0)
        return
    piece.lines.append(row.line)
    piece.events.append(event)
    piece.encoded.append(encoded)
    piece.candidates += encoded.candidates


def _score(piece: _Piece, scorer: Scorer, writer: ScoreWriter, summary: ScoreSummary) -> _Piece:
    if piece.events:
        writer.write(piece.lines, piece.events, scorer.score_events(piece.encoded))
    summary.events += len(piece.events)
    summary.candidates += piece.candidates
    for encoded in piece.encoded:
        summary.unseen_users += encoded.unseen_user
        summary.unseen_candidates += int(encoded.unseen_candidates.sum())
    return _Piece()
