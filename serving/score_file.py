"""A file of events becomes a file of scores, in pieces, whatever its length."""

from __future__ import annotations

import codecs
import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError
from ..foundation.files import open_replacing
from ..foundation.progress import Reporter, Silence
from ..foundation.requests import RequestError
from ..schemas.parquet import UNREADABLE, file_pieces, read_footer, why
from ..workflows.text_lines import FAIL, BadRow, BadRows, refuse
from .encoder import EncodedEvent, Encoder
from .event import NOT_UTF8, Event, not_utf8, parse_json
from .limits import UnavailableError
from .signatures import ROWS_PER_CALL, Scores

if TYPE_CHECKING:
    from .scorer import Scorer  # imports TensorFlow

READERS = (".jsonl", ".csv", ".parquet")
ROWS_PER_READ = 1024
OF_LATIN_1 = " (a file in Latin-1 becomes UTF-8 by `iconv -f WINDOWS-1252 -t UTF-8`)"
"""What to do where a file has a byte that is no UTF-8."""


@dataclass(frozen=True)
class Row:
    """One row of a file."""

    line: int
    """Its line, from 1; of a parquet file its row."""
    fields: Any
    """Its content; a RequestError where that cannot be read."""
    done: int
    """How much of the file's ``size`` has been read with it."""


@dataclass(frozen=True)
class EventFile:
    """A file of events; its name's ending says how it is written.

    In CSV the columns are the user's, ``history`` and ``candidates`` (and the time intervals). A
    list is JSON, or keys separated by ``|``. An empty field is a null.
    """

    path: Path
    encoder: Encoder

    def __post_init__(self) -> None:
        """Look whether the file is there and how it is written."""
        check_ending("--input", self.path, READERS)
        if not self.path.is_file():
            what = "is not a file" if self.path.exists() else "does not exist"
            raise MerlinSimError(f"{self.path}: expected a file of events; it {what}")

    def size(self) -> int:
        """The file's length: rows of parquet, bytes of the others."""
        if self.path.suffix == ".parquet":
            return int(read_footer(self.path)[0].num_rows)
        return self.path.stat().st_size

    def rows(self) -> Iterator[Row]:
        """Read row by row."""
        try:
            yield from self._parquet_rows() if self.path.suffix == ".parquet" else self._text_rows()
        except OSError as error:
            raise MerlinSimError(
                f"{self.path}: cannot be read: {error.strerror or error}"
            ) from error

    def _text_rows(self) -> Iterator[Row]:
        with open(self.path, "rb") as file:
            begin = file.read(4)
        if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise MerlinSimError(
                f"{self.path}: expected UTF-8, received UTF-16. Write it as UTF-8, as "
                f"`iconv -f UTF-16 -t UTF-8 {self.path}` does."
            )
        if self.path.suffix == ".csv":
            # Bytes that are not valid UTF-8 are kept, so that the error can name their row.
            with open(
                self.path, encoding="utf-8-sig", errors="surrogateescape", newline=""
            ) as file:
                yield from self._csv_rows(file)
        else:
            with open(self.path, "rb") as file:
                yield from _json_rows(file)

    def _parquet_rows(self) -> Iterator[Row]:
        names = read_footer(self.path)[1].names
        self._check_columns(names, "the columns")
        line = 0
        try:
            with pq.ParquetFile(self.path) as file:
                for batch in file_pieces(file, names, ROWS_PER_READ):
                    for fields in batch.to_pylist():
                        line += 1
                        yield Row(line, fields, line)
        except (*UNREADABLE, ValueError) as error:
            where = f"{self.path}, after row {line}"
            raise MerlinSimError(f"{where}: cannot be read as parquet: {why(error)}") from error

    def _csv_rows(self, file: TextIOWrapper) -> Iterator[Row]:
        # csv refuses fields above 128 KiB; a list of candidates may be longer.
        csv.field_size_limit(1 << 30)
        reader = csv.reader(file, strict=True)
        header = next(reader, [])
        if (problem := _no_utf8(header, header)) is not None:
            raise MerlinSimError(f"{self.path}, line 1: {problem}")
        self._check_columns(header, "a first line with the columns")
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield Row(line, RequestError(f"expected CSV: {error}"), file.buffer.tell())
                continue
            if cells is None:
                return
            if cells:
                yield Row(line, self._csv_fields(header, cells), file.buffer.tell())

    def _check_columns(self, found: list[str], expected: str) -> None:
        fields = self.encoder.fields_for(found)
        missing = [name for name in fields if name not in found]
        if missing:
            raise MerlinSimError(
                f"{self.path}: expected {expected} {', '.join(fields)}. "
                f"Received: {', '.join(found)!r:.200}, without {', '.join(missing)}."
            )

    def _csv_fields(self, header: list[str], cells: list[str]) -> Any:
        if len(cells) != len(header):
            return RequestError(f"expected {len(header)} fields, found {len(cells)}")
        if (problem := _no_utf8(header, cells)) is not None:
            return RequestError(problem)
        try:
            return self.encoder.from_cells(dict(zip(header, cells, strict=True)))
        except RequestError as error:
            return error


def _no_utf8(header: list[str], cells: list[str]) -> str | None:
    """Say which cell has a byte that is no UTF-8, which reading has kept as a surrogate."""
    for name, cell in zip(header, cells, strict=True):
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            byte = ord(cell[error.start]) - 0xDC00
            shown = name.encode("utf-8", "surrogateescape").decode("latin-1")
            return f"{shown}: {not_utf8(byte)}{OF_LATIN_1}"
    return None


def _json_rows(file: IO[bytes]) -> Iterator[Row]:
    done = 0
    for line, text in enumerate(file, start=1):
        done += len(text)
        if text.strip():
            fields = parse_json(text)
            if isinstance(fields, RequestError) and str(fields).startswith(NOT_UTF8):
                fields = RequestError(f"{fields}{OF_LATIN_1}")
            yield Row(line, fields, done)


def check_ending(option: str, path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file whose ending says nothing that can be read or written."""
    if path.suffix not in endings:
        raise MerlinSimError(
            f"`{option}` should end in {', '.join(endings)}. Received: `{option}` = {path}."
        )


WRITERS = (".jsonl", ".parquet")
LINE, SCORES = "line", "scores"


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
def open_scores(path: Path, encoder: Encoder) -> Iterator[Callable[[list[dict[str, Any]]], object]]:
    """Open a file of scores; it stands under its name when the block has ended well."""
    with open_replacing(path) as file:
        if path.suffix == ".parquet":
            types = {LINE: pa.int64(), **encoder.output_types(), SCORES: pa.list_(pa.float32())}
            schema = pa.schema(list(types.items()))
            with pq.ParquetWriter(file, schema) as parquet:
                yield lambda rows: parquet.write_table(pa.Table.from_pylist(rows, schema))
        else:
            yield lambda rows: file.writelines(
                json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows
            )


EVENTS_PER_PIECE = 1024
EVENTS_PER_READ = 128
"""Whose histories are read together."""


@dataclass
class ScoreSummary:
    """Numbers of rows that a run scored and left out."""

    events: int = 0
    candidates: int = 0
    unseen_users: int = 0
    """Events whose user, in any of its keys, was not there when the workflow was fitted."""
    unseen_candidates: int = 0
    bad_rows: BadRows = field(default_factory=lambda: BadRows(""))

    def add(self, events: Sequence[EncodedEvent]) -> None:
        """Count events that were scored."""
        self.events += len(events)
        for event in events:
            self.candidates += event.candidate_count
            self.unseen_users += event.unseen_user
            self.unseen_candidates += int(event.unseen_candidates.sum())


class _Encoded(NamedTuple):
    """An event read and not yet scored."""

    line: int
    event: Event
    ids: EncodedEvent


def score_file(
    scorer: Scorer,
    encoder: Encoder,
    source: Path,
    output: Path,
    *,
    on_bad_rows: str = FAIL,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> ScoreSummary:
    """Score every event of a file; with ``"skip"`` those that cannot be are left out."""
    summary = ScoreSummary(bad_rows=BadRows(str(source)))
    reporter = reporter or Silence()
    check_output(output, source, overwrite)
    events = EventFile(source, encoder)
    with (
        open_scores(output, encoder) as write,
        reporter.phase("scoring", events.size()) as report,
    ):
        reported = 0
        rows = _with_histories(events.rows(), encoder)
        for done, piece in _pieces(rows, events.size(), encoder, summary.bad_rows, on_bad_rows):
            report(done - reported, len(piece))
            reported = done
            if piece:
                scores = scorer.score_events([one.ids for one in piece])
                write([_row(one, of, encoder) for one, of in zip(piece, scores, strict=True)])
            summary.add([one.ids for one in piece])
    return summary


def _with_histories(rows: Iterator[Row], encoder: Encoder) -> Iterator[Row]:
    """Give rows with the histories that they do not bring, which are read some at a time."""
    while some := list(islice(rows, EVENTS_PER_READ)):
        sound = [row for row in some if not isinstance(row.fields, Exception)]
        whole = iter(encoder.with_histories([row.fields for row in sound]))
        for row in some:
            yield row if isinstance(row.fields, Exception) else replace(row, fields=next(whole))


def _pieces(
    rows: Iterator[Row], size: int, encoder: Encoder, bad_rows: BadRows, on_bad_rows: str
) -> Iterator[tuple[int, list[_Encoded]]]:
    """Give events that are scored together, and how much of the file, of a size, is read."""
    piece: list[_Encoded] = []
    candidates = 0
    for row in rows:
        try:
            if isinstance(row.fields, Exception):
                raise row.fields
            event = encoder.parse(row.fields)
            piece.append(_Encoded(row.line, event, encoder.encode(event)))
        except (RequestError, UnavailableError) as error:
            bad = BadRow(row.line, str(error))
            if on_bad_rows == FAIL:
                raise refuse(bad_rows.path, bad) from error
            bad_rows.add([bad], 0)
            continue
        candidates += piece[-1].ids.candidate_count
        if len(piece) >= EVENTS_PER_PIECE or candidates >= ROWS_PER_CALL:
            yield row.done, piece
            piece, candidates = [], 0
    yield size, piece


def _row(one: _Encoded, scores: Scores, encoder: Encoder) -> dict[str, Any]:
    # A float32 in its shortest form: 0.1, not 0.10000000149011612.
    numbers = [float(str(score)) for score in scores]
    return {LINE: one.line, **encoder.output_row(one.event), SCORES: numbers}
