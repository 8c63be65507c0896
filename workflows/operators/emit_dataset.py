"""The last operator: the dataset's columns, as its schema describes them."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ..engine.backend import array_module, list_column, lists_of, new_frame, pad_left
from .row_operator import RowOperator


class EmitDataset(RowOperator):
    """Put the columns in the published order, and give the graph the dataset's schema.

    Args:
        schema: The dataset's schema, with tags, domains and lengths.
        pad: Write every list left-padded with 0 to its longest length, as published.
    """

    def __init__(self, schema: Schema, pad: bool = False) -> None:
        """Store the arguments."""
        super().__init__()
        self.schema = schema
        self.pad = pad

    def inputs(self) -> tuple[str, ...]:
        """The columns of the schema."""
        return tuple(self.schema.column_names)

    def outputs(self) -> Schema:
        """The schema."""
        return self.schema

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Order, cast and pad one partition."""
        columns = {}
        for name, column in self.schema.column_schemas.items():
            if not column.is_list:
                columns[name] = df[name].astype(column.dtype.name)
            elif self.pad and _is_history(column):
                longest, dtype = int(column.value_count.max), column.dtype.name
                padded = pad_left(*lists_of(df[name], dtype), longest, array_module(df))
                columns[name] = list_column(*padded, like=df)
            else:
                columns[name] = df[name]
        return new_frame(columns, like=df)


def _is_history(column: ColumnSchema) -> bool:
    """Whether its lists are of different lengths; vectors and lists of a target are of one."""
    return bool(column.is_ragged)
