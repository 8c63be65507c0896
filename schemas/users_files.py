"""The files of the layout with one row per user, as their footers tell them: are they all there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from ..foundation.exceptions import SpecError
from ..foundation.problem import Problem
from .channels import TARGET_ITEM_FEATURES, USER_FEATURES
from .parquet.footer import UnreadableFooter, read_footer
from .specs.feature_spec import FeatureSpec
from .stored_types import is_list, type_in_words
from .users_layout import UsersLayout

ID = "id"
COUNT = "count"
SINGLE, IDS, TIMES = "one value a row, whole numbers", "lists of whole numbers", "lists of numbers"
"""What a column may hold."""


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
        single = [*spec.channel_spec.get(USER_FEATURES, ()), *positions]
        times = [] if layout.times is None else [layout.times]
        lists = [layout.history, *([] if layout.same_time is None else [layout.same_time])]
        problems += _problems(directory / name, single, lists, times)
    table = directory / layout.item_table
    found = _problems(table, [ID, COUNT, *layout.item_features])
    problems += found or _wrong_size(table, spec)
    if problems:
        raise SpecError(directory, problems)


def _problems(
    file: Path, single: list[str], lists: Sequence[str] = (), times: Sequence[str] = ()
) -> list[Problem]:
    try:
        _, columns = read_footer(file)
    except UnreadableFooter as error:
        return [error.problem]
    wanted = dict.fromkeys(single, SINGLE) | dict.fromkeys(lists, IDS) | dict.fromkeys(times, TIMES)
    return [
        Problem(str(file), (name,), *found)
        for name, expected in wanted.items()
        for found in _wrong_column(columns, name, expected)
    ]


def _wrong_column(columns: pa.Schema, name: str, expected: str) -> Iterator[tuple[str, str]]:
    count = columns.names.count(name)
    if count != 1:
        yield "one column", "none" if count == 0 else f"{count} of this name"
        return
    kind = columns.field(name).type
    inner = kind.value_type if is_list(kind) else kind
    is_right = pa.types.is_integer(inner) or (expected == TIMES and pa.types.is_floating(inner))
    if is_list(kind) != (expected != SINGLE) or not is_right:
        yield expected, type_in_words(kind)


def _wrong_size(table: Path, spec: FeatureSpec) -> list[Problem]:
    item = spec.channel_spec[TARGET_ITEM_FEATURES][0]
    size, rows = spec.feature_spec[item].cardinality, read_footer(table)[0].num_rows
    if rows == size:
        return []
    return [Problem(str(table), (), f"{size} rows, the cardinality of {item}", str(rows))]
