"""The base of operators that make other rows."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema
from nvtabular.ops import Operator


class RowOperator(Operator):
    """An operator whose rows are not its input's rows.

    Every column of the table has to go through such an operator, as its output columns stand
    for other rows than its input columns. A subclass says what it takes and makes.
    """

    whole_by: str | None = None
    """The column whose rows of one value have to stand in one partition; None for no such."""

    def inputs(self) -> tuple[str, ...]:
        """Name the columns taken."""
        raise NotImplementedError

    def outputs(self) -> Schema:
        """Describe the columns made."""
        raise NotImplementedError

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """Every output column depends on all columns taken."""
        return {name: list(self.inputs()) for name in self.outputs().column_names}

    def compute_output_schema(
        self, input_schema: Schema, col_selector: Any, prev_output_schema: Schema | None = None
    ) -> Schema:
        """Give the schema of ``outputs``, after looking whether the inputs are there."""
        missing = [name for name in self.inputs() if name not in input_schema.column_names]
        if missing:
            raise ValueError(
                f"{type(self).__name__} needs the columns {', '.join(self.inputs())}; "
                f"missing: {', '.join(missing)}."
            )
        return self.outputs()


def number_column(name: str) -> ColumnSchema:
    """Describe a column of one number a row."""
    return ColumnSchema(name, dtype="float64")


def number_list_column(name: str) -> ColumnSchema:
    """Describe a column of a list of numbers a row."""
    return ColumnSchema(name, dtype="float64", dims=(None, (0, None)))


def id_list_column(name: str) -> ColumnSchema:
    """Describe a column of a list of ids a row."""
    return ColumnSchema(name, dtype="int64", dims=(None, (0, None)))
