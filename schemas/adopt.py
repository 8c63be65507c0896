"""The published parquet layout, adopted where it stands: described, checked, not copied.

The layout has train/, test/ and metadata.json, and no spec: what a column is follows from its
place. Label first, then the user features, then the target item's features, the positive history
of each, and the negative history of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError, Problem, SpecError
from . import SCHEMA_FILE, SPEC_FILE
from .channels import (
    BEHAVIOUR,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from .dataset import natural_order
from .feature_spec import Chunk, Feature, FeatureSpec
from .layout_names import PUBLISHED, TEST, TRAIN, LayoutNames
from .merlin_schema import to_merlin_schema
from .metadata_file import read_cardinalities
from .parquet import (
    UNREADABLE,
    UnreadableFooter,
    file_pieces,
    is_list,
    read_footer,
    type_in_words,
    why,
)
from .schema_file import write_schema

ROWS_AT_ONCE = 65_536

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PublishedColumns:
    """Columns of the published layout, by what they hold."""

    label: str

    single: dict[str, int]
    """Columns with one id a row -> their cardinality."""

    histories: dict[str, int]
    """List columns -> their cardinality."""


def _check_rows(file: Path, columns: PublishedColumns) -> tuple[list[Problem], int, int]:
    """Check every row of a file; it has the right columns of the right types.

    Labels are 0 or 1; ids run from 1 to the cardinality; the histories of a row have one length;
    in a history 0 only pads, on the left. Gives the first fault of each column that has one, the
    length of the longest history, and how many rows there are.
    """
    faults: dict[str, Problem] = {}
    longest, row = 0, 0
    try:
        with pq.ParquetFile(file) as parquet:
            for batch in file_pieces(parquet, parquet.schema_arrow.names, ROWS_AT_ONCE):
                for name, bad, expected, received in _faults(batch, columns):
                    where = f"row {row + bad + 1}"
                    faults.setdefault(name, Problem(str(file), (name, where), expected, received))
                longest = max(longest, _longest(batch, columns))
                row += batch.num_rows
    except UNREADABLE as error:
        reason = f"after row {row}: {why(error)}"
        faults[""] = Problem(str(file), (), "a whole parquet file", reason)
    return list(faults.values()), longest, row


def _longest(batch: pa.RecordBatch, columns: PublishedColumns) -> int:
    lengths = [pc.max(pc.list_value_length(batch.column(name))) for name in columns.histories]
    return max((length.as_py() or 0 for length in lengths), default=0)


def _faults(
    batch: pa.RecordBatch, columns: PublishedColumns
) -> Iterator[tuple[str, int, str, str]]:
    nulls = {name for name in batch.schema.names if batch.column(name).null_count}
    for name in nulls:
        first = int(np.argmax(batch.column(name).is_null().to_numpy(False)))
        yield name, first, "a value", "nothing"
    if columns.label not in nulls:
        labels = pc.cast(batch.column(columns.label), pa.float64()).to_numpy(False)
        bad = (labels != 0) & (labels != 1)
        if bad.any():
            first = int(np.argmax(bad))
            yield columns.label, first, "0 or 1", f"{labels[first]:g}"
    for name, cardinality in columns.single.items():
        if name not in nulls:
            ids = batch.column(name).to_numpy(False)
            bad = (ids < 1) | (ids > cardinality)
            if bad.any():
                first = int(np.argmax(bad))
                yield name, first, f"an id from 1 to {cardinality}", str(ids[first])
    lengths: Array | None = None
    for name, cardinality in columns.histories.items():
        if name in nulls:
            continue
        ours = pc.list_value_length(batch.column(name)).to_numpy(False)
        lengths = ours if lengths is None else lengths
        if (ours != lengths).any():
            first = int(np.argmax(ours != lengths))
            received = f"{ours[first]} entries, not {lengths[first]}"
            yield name, first, "a list as long as the row's other histories", received
        yield from _history_faults(name, batch.column(name), cardinality)


def _history_faults(
    name: str, column: pa.Array, cardinality: int
) -> Iterator[tuple[str, int, str, str]]:
    values = pc.list_flatten(column)
    rows = pc.list_parent_indices(column).to_numpy(False)
    if values.null_count:
        yield name, int(rows[np.argmax(values.is_null().to_numpy(False))]), "ids", "nothing"
        return
    ids = values.to_numpy(False)
    outside = (ids < 0) | (ids > cardinality)
    if outside.any():
        first = int(np.argmax(outside))
        yield name, int(rows[first]), f"ids from 0 to {cardinality}", str(ids[first])
        return
    pads_late = (ids[1:] == 0) & (ids[:-1] != 0) & (rows[1:] == rows[:-1])
    if pads_late.any():
        first = int(np.argmax(pads_late))
        yield name, int(rows[first]), "padding on the left only", f"0 after {ids[first]}"


ORDER = (LABEL, USER_FEATURES, TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY)


def adopt(
    directory: Path | str,
    number_of_user_features: int,
    *,
    names: LayoutNames = PUBLISHED,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> FeatureSpec:
    """Describe a dataset in the published layout where it stands, after checking all its rows.

    Args:
        directory: Holds train/*.parquet, test/*.parquet and metadata.json.
        number_of_user_features: How many columns after the label are the user's.
        names: Other names of those three.
        on_rows: Called with the number of rows checked since the last call.

    Returns:
        The spec, which now stands in the directory beside schema.pbtxt.

    Raises:
        MerlinSimError: With each file and column that is not as it should be.
    """
    directory = Path(directory)
    for name in (SPEC_FILE, SCHEMA_FILE):
        if (directory / name).exists():
            raise MerlinSimError(f"{directory / name} exists: the dataset has a spec already")
    spec = describe(directory, number_of_user_features, names=names, on_rows=on_rows)
    write_schema(to_merlin_schema(spec), directory / SCHEMA_FILE)
    spec.write(directory / SPEC_FILE)
    return spec


def describe(
    directory: Path,
    number_of_user_features: int,
    *,
    names: LayoutNames = PUBLISHED,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> FeatureSpec:
    """Return what :func:`adopt` would write, after the same checks, and write nothing."""
    if not directory.is_dir():
        raise MerlinSimError(f"{directory}: expected a dataset directory; there is none")
    files = {mapping: _find_files(directory, at) for mapping, at in names.directories.items()}
    every_file = [*files[TRAIN], *files[TEST]]
    schema = read_footer(every_file[0])[1]
    channels = _channels(every_file[0], schema, number_of_user_features)
    cardinality = _cardinality(directory / names.metadata, channels)
    for file in every_file:
        _check_columns(file, read_footer(file)[1], schema, channels)
    columns = PublishedColumns(
        label=channels[LABEL][0],
        single={n: c for n, c in cardinality.items() if n not in _histories(channels)},
        histories={n: cardinality[n] for n in _histories(channels)},
    )
    problems: list[Problem] = []
    longest = 1
    for mapping, found in files.items():
        count = 0
        for file in found:
            faults, of_file, rows = _check_rows(file, columns)
            problems, longest, count = problems + faults, max(longest, of_file), count + rows
            on_rows(rows)
        if not problems and not count:
            folder = directory / names.directories[mapping]
            problems.append(Problem(str(folder), (), "at least one row", "none"))
    if problems:
        raise SpecError(directory, problems)
    spec = _spec(directory, files, schema, channels, cardinality, longest)
    BEHAVIOUR.check(spec)
    return spec


def count_rows(directory: Path | str, names: LayoutNames = PUBLISHED) -> int:
    """Return how many rows :func:`adopt` will check; 0 where the files cannot say."""
    folders = [Path(directory, name) for name in names.directories.values()]
    files = [file for folder in folders for file in folder.glob("*.parquet")]
    try:
        return sum(read_footer(file)[0].num_rows for file in files)
    except UnreadableFooter:
        return 0


def _find_files(directory: Path, name: str) -> list[Path]:
    found = (directory / name).glob("*.parquet") if (directory / name).is_dir() else ()
    files = sorted(found, key=natural_order)
    if not files:
        raise MerlinSimError(f"{directory / name}: expected parquet files, found none")
    return files


def _histories(channels: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return (*channels[POSITIVE_HISTORY], *channels[NEGATIVE_HISTORY])


def _channels(file: Path, schema: pa.Schema, user_count: int) -> dict[str, tuple[str, ...]]:
    columns = tuple(schema.names)
    items, remainder = divmod(len(columns) - 1 - user_count, 3)
    if user_count < 0 or items < 1 or remainder:
        raise MerlinSimError(
            f"{file}: expected 1 label, {user_count} user features, and target, positive history "
            f"and negative history of as many item features each; got {len(columns)} columns. "
            "Is --number_of_user_features right?"
        )
    if len(set(columns)) < len(columns):
        raise MerlinSimError(f"{file}: expected each column name once; got {list(columns)}")
    channels, start = {}, 0
    for name, count in zip(ORDER, (1, user_count, items, items, items), strict=True):
        channels[name] = columns[start : start + count]
        start += count
    return channels


def _cardinality(metadata: Path, channels: dict[str, tuple[str, ...]]) -> dict[str, int]:
    values = [value for _, value in read_cardinalities(metadata)]
    users, items = len(channels[USER_FEATURES]), len(channels[TARGET_ITEM_FEATURES])
    if len(values) != users + items:
        raise MerlinSimError(
            f"{metadata}: expected {users} + {items} cardinalities (user and item features), "
            f"got {len(values)}"
        )
    found = dict(zip(channels[USER_FEATURES], values[:users], strict=True))
    for channel in (TARGET_ITEM_FEATURES, POSITIVE_HISTORY, NEGATIVE_HISTORY):
        found |= dict(zip(channels[channel], values[users:], strict=True))
    return found


def _check_columns(
    file: Path, schema: pa.Schema, first: pa.Schema, channels: dict[str, tuple[str, ...]]
) -> None:
    if schema.names != first.names:
        expected = ", ".join(first.names)
        raise MerlinSimError(f"{file}: expected the columns {expected}; got {schema.names}")
    problems = []
    for name in first.names:
        kind, of_first = schema.field(name).type, first.field(name).type
        fits, expected = bool(pa.types.is_integer(kind)), "ids"
        if name in _histories(channels):
            fits, expected = is_list(kind) and pa.types.is_integer(kind.value_type), "lists of ids"
        elif name in channels[LABEL]:
            is_label = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating)
            fits, expected = any(test(kind) for test in is_label), "labels of 0 and 1"
        if fits and not kind.equals(of_first):
            fits, expected = False, f"{type_in_words(of_first)}, as in the first file"
        if not fits:
            problems.append(Problem(str(file), (name,), expected, type_in_words(kind)))
    if problems:
        raise SpecError(file, problems)


def _spec(
    directory: Path,
    files: dict[str, list[Path]],
    schema: pa.Schema,
    channels: dict[str, tuple[str, ...]],
    cardinality: dict[str, int],
    longest: int,
) -> FeatureSpec:
    histories = _histories(channels)
    features = {
        name: Feature(
            _dtype(schema.field(name).type),
            cardinality.get(name),
            (longest,) if name in histories else None,
        )
        for name in schema.names
    }
    columns = tuple(schema.names)
    sources = {
        mapping: (
            Chunk("parquet", columns, tuple(str(file.relative_to(directory)) for file in found)),
        )
        for mapping, found in files.items()
    }
    return FeatureSpec(features, sources, channels)


def _dtype(kind: pa.DataType) -> str:
    name = str(kind.value_type if is_list(kind) else kind)
    return {"float": "float32", "double": "float64", "halffloat": "float16"}.get(name, name)
