"""The bases of operators that make other rows, and of those that read the table of items."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dask
from merlin.schema import ColumnSchema, Schema
from nvtabular.ops import Operator, StatOperator

from ...foundation.exceptions import MerlinSimError
from ...schemas.item_table import ItemTable

ITEM_TABLES = "items"
"""Where a saved workflow keeps the item's vocabulary."""


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


class ItemTableOperator(StatOperator):
    """An operator that reads ``items``, which was fitted before the workflow was made.

    NVTabular's ``Workflow.save`` asks such operators to copy their files beside the workflow, and
    ``Workflow.load`` says where they are then: a saved workflow may be moved.
    """

    items: ItemTable
    fitted = True

    def fit(self, col_selector: Any, ddf: Any) -> Any:
        """Learn nothing: the table is there."""
        return dask.delayed(None)

    def fit_finalize(self, dask_stats: Any) -> None:
        """Learn nothing."""

    def clear(self) -> None:
        """Forget nothing."""

    def set_storage_path(self, new_path: Any, copy: bool = False) -> None:
        """Read the table below another path, after it was copied there if asked."""
        if "://" in str(new_path):
            raise MerlinSimError(
                "A workflow with the items of a dataset is saved in a directory of this machine. "
                f"Received: {new_path}. Save it locally, then copy the directory."
            )
        stored = Path(new_path) / ITEM_TABLES / self.items.path.name
        if copy and stored != self.items.path:
            stored.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.items.path, stored)
        self.read_items(ItemTable(stored))

    def read_items(self, items: ItemTable) -> None:
        """Read another table."""
        self.items = items


def id_column(name: str) -> ColumnSchema:
    """Describe a column of one id a row."""
    return ColumnSchema(name, dtype="int64")


def number_column(name: str) -> ColumnSchema:
    """Describe a column of one number a row."""
    return ColumnSchema(name, dtype="float64")


def number_list_column(name: str) -> ColumnSchema:
    """Describe a column of a list of numbers a row."""
    return ColumnSchema(name, dtype="float64", dims=(None, (0, None)))


def id_list_column(name: str) -> ColumnSchema:
    """Describe a column of a list of ids a row."""
    return ColumnSchema(name, dtype="int64", dims=(None, (0, None)))
