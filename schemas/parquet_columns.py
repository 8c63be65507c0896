"""The columns of a dataset's parquet files, as their footers tell them, compared with the spec."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ..foundation.exceptions import SpecError
from ..foundation.problem import Problem
from .dtypes import is_integer, is_number
from .parquet.footer import UnreadableFooter, read_footer
from .specs.feature_spec import FeatureSpec
from .stored_types import fits, is_list, type_in_words
from .translation.merlin_import import Schema


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
