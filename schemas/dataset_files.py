"""The parquet files of a dataset, as their footers describe them, compared with the spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ..foundation.exceptions import Problem, SpecError
from .channels import TARGET_ITEM_FEATURES, USER_NUMERICAL
from .dtypes import is_integer, is_number
from .feature_spec import FeatureSpec
from .item_table import COUNT, ID
from .parquet import UnreadableFooter, fits, is_list, read_footer, type_in_words
from .users_layout import OF_USERS, UsersLayout

if TYPE_CHECKING:
    from .merlin_import import Schema

TIME, VALUE = "time", "value"
SECONDS, TAKEN = "seconds", "taken"


class Kind(NamedTuple):
    """Kind of values that a column may hold."""

    is_list: bool
    dtype: str

    @property
    def in_words(self) -> str:
        """For messages."""
        numbers = "numbers" if is_number(self.dtype) else "values"
        numbers = "whole numbers" if is_integer(self.dtype) else numbers
        return f"lists of {numbers}" if self.is_list else f"one value a row, {numbers}"


ID_OF_ROW, NUMBER_OF_ROW = Kind(False, "int64"), Kind(False, "float32")
IDS_OF_ROW, NUMBERS_OF_ROW = Kind(True, "int64"), Kind(True, "float32")


def check_parquet_columns(directory: Path, spec: FeatureSpec, schema: Schema) -> None:
    """Look into the parquet files' footers: every column there, of the type that the spec says."""
    problems: list[Problem] = []
    for chunk in (chunk for chunks in spec.source_spec.values() for chunk in chunks):
        if chunk.type == "parquet":
            dtypes = {name: spec.feature_spec[name].dtype for name in chunk.features}
            kinds = {name: Kind(bool(schema[name].is_list), dtypes[name]) for name in dtypes}
            for name in chunk.files:
                problems += _problems(directory / name, kinds, dtypes)
    if problems:
        raise SpecError(directory, problems)


def check_users_files(directory: Path, spec: FeatureSpec, layout: UsersLayout) -> None:
    """Look into the footers of the users' files and of the item table."""
    problems: list[Problem] = []
    files: dict[str, list[str]] = {}
    for mapping, (chunk,) in spec.source_spec.items():
        for name in chunk.files:
            files.setdefault(name, []).extend(layout.positions[mapping])
    for name, positions in files.items():
        problems += _problems(directory / name, kinds_of_users(spec, layout, positions))
    table = directory / layout.item_table
    expected = dict.fromkeys([ID, COUNT, *layout.item_features], ID_OF_ROW)
    for name, column in layout.item_columns.items():
        feature = spec.feature_spec[name]
        dtype = "int64" if feature.cardinality else "float32"
        expected[column] = Kind(bool(feature.dimensions), dtype)
    found = _problems(table, expected)
    problems += found or _wrong_size(table, spec)
    for name in layout.item_changes.values():
        problems += _problems(directory / name, {ID: ID_OF_ROW, TIME: ID_OF_ROW})
    for encoding in layout.encodings.values():
        events = {ID: ID_OF_ROW, SECONDS: NUMBER_OF_ROW, TAKEN: ID_OF_ROW}
        problems += _problems(directory / encoding.events, events)
    if problems:
        raise SpecError(directory, problems)


def kinds_of_users(
    spec: FeatureSpec, layout: UsersLayout, positions: Iterable[str]
) -> dict[str, Kind]:
    """Say by column what a file of users holds."""
    numbers = set(spec.channel_spec.get(USER_NUMERICAL, ()))
    features = {name for channel in OF_USERS for name in spec.channel_spec.get(channel, ())}
    expected = {
        name: Kind(name in layout.per_interaction, "float32" if name in numbers else "int64")
        for name in sorted(features)
    }
    more = filter(None, (layout.samples_before, layout.user_hash))
    expected |= dict.fromkeys([*positions, *more], ID_OF_ROW)
    expected |= {
        name: expected[name]._replace(is_list=True) if name in expected else IDS_OF_ROW
        for name in layout.lists
    }
    return expected | ({} if layout.times is None else {layout.times: NUMBERS_OF_ROW})


def _problems(
    file: Path, expected: Mapping[str, Kind], dtypes: Mapping[str, str] | None = None
) -> list[Problem]:
    """Compare a file's columns with what is expected; the spec's dtypes are named where given."""
    try:
        _, columns = read_footer(file)
    except UnreadableFooter as error:
        return [error.problem]
    stated = {name: f" (dtype {dtype})" for name, dtype in (dtypes or {}).items()}
    return [
        Problem(str(file), (name,), *found)
        for name, kind in expected.items()
        for found in _wrong_column(columns, name, kind, stated.get(name, ""))
    ]


def _wrong_column(
    columns: pa.Schema, name: str, expected: Kind, stated: str
) -> Iterator[tuple[str, str]]:
    count = columns.names.count(name)
    if count != 1:
        yield "one column", "none" if count == 0 else f"{count} of this name"
        return
    kind = columns.field(name).type
    inner = kind.value_type if is_list(kind) else kind
    # Users' files are read as they are: nothing is decoded there.
    is_plain = bool(stated) or not (pa.types.is_boolean(inner) or pa.types.is_dictionary(inner))
    if is_list(kind) != expected.is_list or not fits(kind, expected.dtype) or not is_plain:
        yield f"{expected.in_words}{stated}", type_in_words(kind)


def _wrong_size(table: Path, spec: FeatureSpec) -> list[Problem]:
    item = spec.channel_spec[TARGET_ITEM_FEATURES][0]
    size, rows = spec.feature_spec[item].cardinality, read_footer(table)[0].num_rows
    if rows == size:
        return []
    return [Problem(str(table), (), f"{size} rows, the cardinality of {item}", str(rows))]
