"""The last operator: the dataset's columns, as its schema describes them."""

from __future__ import annotations

from typing import Any

from merlin.schema import Schema

from ..engine.backend import new_frame
from .row_operator import RowOperator


class EmitDataset(RowOperator):
    """Put the columns in the published order, and give the graph the dataset's schema.

    Args:
        schema: The dataset's schema, with tags, domains and lengths.
    """

    def __init__(self, schema: Schema) -> None:
        """Store the arguments."""
        super().__init__()
        self.schema = schema

    def inputs(self) -> tuple[str, ...]:
        """The columns of the schema."""
        return tuple(self.schema.column_names)

    def outputs(self) -> Schema:
        """The schema."""
        return self.schema

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Order and cast one partition."""
        columns = {
            name: df[name].astype(column.dtype.name)
            for name, column in self.schema.column_schemas.items()
        }
        return new_frame(columns, like=df)
