"""The parquet files of a dataset, as their footers tell them, compared with the spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ..foundation.exceptions import SpecError
from ..foundation.problem import Problem
from .channels import TARGET_ITEM_FEATURES, USER_NUMERICAL
from .dtypes import is_integer, is_number
from .parquet import UnreadableFooter, fits, is_list, read_footer, type_in_words
from .specs.feature_spec import FeatureSpec
from .translation.merlin_import import Schema
from .users_layout import OF_USERS, UsersLayout


def check_parquet_columns(directory: Path, spec: FeatureSpec, schema: Schema) -> None:
    """Look into the parquet files' footers: every column there, of the type that the spec says.

    Raises:
        SpecError: With every file and column that is not as the spec says.
    """
    problems: list[Problem] = []
    for chunks in spec.source_spec.values():
        for chunk in chunks:
            for name in chunk.files if chunk.type == "parquet" else ():
                file = directory / name
                try:
                    _, columns = read_footer(file)
                except UnreadableFooter as error:
                    problems.append(error.problem)
                    continue
                for feature in chunk.features:
                    is_list_feature = bool(schema[feature].is_list)
                    dtype = spec.feature_spec[feature].dtype
                    found = _column_problem(columns, feature, dtype, is_list_feature)
                    if found is not None:
                        problems.append(Problem(str(file), (feature,), *found))
    if problems:
        raise SpecError(directory, problems)


def _column_problem(
    columns: pa.Schema, name: str, dtype: str, is_list_feature: bool
) -> tuple[str, str] | None:
    """Say what was expected of a column and what it is, None where it is as it should be."""
    count = columns.names.count(name)
    if count != 1:
        return "one column", "none" if count == 0 else f"{count} of this name"
    kind = columns.field(name).type
    if is_list(kind) == is_list_feature and fits(kind, dtype):
        return None
    values = "whole numbers" if is_integer(dtype) else "numbers" if is_number(dtype) else "values"
    shape = "lists of {}" if is_list_feature else "one value a row, {}"
    return f"{shape.format(values)} (dtype {dtype})", type_in_words(kind)


ID = "id"
COUNT = "count"
TIME, VALUE = "time", "value"
SECONDS, TAKEN = "seconds", "taken"


class Kind(NamedTuple):
    """What a column may hold."""

    is_list: bool
    are_ids: bool

    @property
    def in_words(self) -> str:
        """For messages."""
        numbers = "whole numbers" if self.are_ids else "numbers"
        return f"lists of {numbers}" if self.is_list else f"one value a row, {numbers}"


ID_OF_ROW, NUMBER_OF_ROW = Kind(False, True), Kind(False, False)


def check_users_files(directory: Path, spec: FeatureSpec, layout: UsersLayout) -> None:
    """Look into the footers of the users' files and of the item table.

    Raises:
        SpecError: With every file and column that is not as the spec says.
    """
    problems: list[Problem] = []
    files: dict[str, list[str]] = {}
    for mapping, (chunk,) in spec.source_spec.items():
        for name in chunk.files:
            files.setdefault(name, []).extend(layout.positions[mapping])
    for name, positions in files.items():
        problems += _problems(directory / name, wanted_of_users(spec, layout, positions))
    table = directory / layout.item_table
    wanted = dict.fromkeys([ID, COUNT, *layout.item_features], ID_OF_ROW)
    for name, column in layout.item_columns.items():
        feature = spec.feature_spec[name]
        wanted[column] = Kind(bool(feature.dimensions), bool(feature.cardinality))
    found = _problems(table, wanted)
    problems += found or _wrong_size(table, spec)
    for name in layout.item_changes.values():
        problems += _problems(directory / name, {ID: ID_OF_ROW, TIME: ID_OF_ROW})
    for encoding in layout.encodings.values():
        events = {ID: ID_OF_ROW, SECONDS: NUMBER_OF_ROW, TAKEN: ID_OF_ROW}
        problems += _problems(directory / encoding.events, events)
    if problems:
        raise SpecError(directory, problems)


def wanted_of_users(
    spec: FeatureSpec, layout: UsersLayout, positions: Iterable[str]
) -> dict[str, Kind]:
    """Say by column what a file of users holds."""
    numbers = set(spec.channel_spec.get(USER_NUMERICAL, ()))
    features = {name for channel in OF_USERS for name in spec.channel_spec.get(channel, ())}
    wanted = {
        name: Kind(is_list=name in layout.per_interaction, are_ids=name not in numbers)
        for name in sorted(features)
    }
    before = [] if layout.samples_before is None else [layout.samples_before]
    wanted |= dict.fromkeys([*positions, *before], ID_OF_ROW)
    wanted |= {
        name: Kind(True, wanted[name].are_ids if name in wanted else True) for name in layout.lists
    }
    return wanted | ({} if layout.times is None else {layout.times: Kind(True, False)})


def _problems(file: Path, wanted: Mapping[str, Kind]) -> list[Problem]:
    try:
        _, columns = read_footer(file)
    except UnreadableFooter as error:
        return [error.problem]
    return [
        Problem(str(file), (name,), *found)
        for name, kind in wanted.items()
        for found in _wrong_column(columns, name, kind)
    ]


def _wrong_column(columns: pa.Schema, name: str, expected: Kind) -> Iterator[tuple[str, str]]:
    count = columns.names.count(name)
    if count != 1:
        yield "one column", "none" if count == 0 else f"{count} of this name"
        return
    kind = columns.field(name).type
    inner = kind.value_type if is_list(kind) else kind
    fits = pa.types.is_integer(inner) or (not expected.are_ids and pa.types.is_floating(inner))
    if is_list(kind) != expected.is_list or not fits:
        yield expected.in_words, type_in_words(kind)


def _wrong_size(table: Path, spec: FeatureSpec) -> list[Problem]:
    item = spec.channel_spec[TARGET_ITEM_FEATURES][0]
    size, rows = spec.feature_spec[item].cardinality, read_footer(table)[0].num_rows
    if rows == size:
        return []
    return [Problem(str(table), (), f"{size} rows, the cardinality of {item}", str(rows))]
