"""The columns of a dataset without their rows: the types into which every part's values fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from ..data_error import DamageError, DataError
from .decoded_rows import Column, DecodedRows, ListColumn


def common_layout(layouts: list[DecodedRows]) -> DecodedRows:
    """Join the layouts of several files: the widest dtype of each column.

    Raises:
        DataError: where a column is a list in one file and a scalar in another, or where two
            files' types have none in common.
    """
    first = layouts[0]
    columns = dict(first.columns)
    for layout in layouts[1:]:
        for name, column in layout.columns.items():
            kept = columns[name]
            kind = np.promote_types(kept.values.dtype, column.values.dtype)
            whole = {kept.values.dtype.kind, column.values.dtype.kind} <= set("biu")
            if type(kept) is not type(column) or (whole and kind.kind not in "biu"):
                raise DataError(
                    f"column {name} holds {_describe(column)} in {layout.origin}"
                    f" and {_describe(kept)} in {first.origin}."
                )
            columns[name] = replace(kept, values=kept.values.astype(kind))
    return replace(first, columns=columns)


def _describe(column: Column) -> str:
    kind = str(column.values.dtype)
    return f"lists of {kind}" if isinstance(column, ListColumn) else kind


def require_fit(
    columns: dict[str, Column],
    rows: int,
    layout: DecodedRows,
    casting: Literal["safe", "same_kind"] = "same_kind",
) -> None:
    """Refuse what cannot be copied to the layout's arrays as it is.

    Histories come in other widths than they are stored in: their values were checked by then.

    Raises:
        DamageError: where rows are missing, or are of another type.
    """
    for name, column in columns.items():
        like = layout.columns[name]
        is_list = isinstance(column, ListColumn)
        count = len(column.offsets) - 1 if isinstance(column, ListColumn) else len(column.values)
        fits = np.can_cast(column.values.dtype, like.values.dtype, casting)
        if count != rows or is_list != isinstance(like, ListColumn) or not fits:
            raise DamageError(
                f"column {name} has {count} rows of {_describe(column)} where {rows} rows of"
                f" {_describe(like)} were announced"
            )
