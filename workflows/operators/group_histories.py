"""Interactions become one row a user."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.backend import group_sorted
from .row_operator import RowOperator


class GroupHistories(RowOperator):
    """Collect each user's items in the order of (time, item), ties by the item's raw key.

    A partition has to hold all interactions of its users.

    Args:
        columns: The log's columns.
    """

    def __init__(self, columns: BehaviourColumns) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, the item and the timestamp."""
        return (*self.columns.users, self.columns.item, self.columns.timestamp)

    def outputs(self) -> Schema:
        """The user's columns, and the items as a list."""
        users = [ColumnSchema(name) for name in self.columns.users]
        return Schema([*users, ColumnSchema(self.columns.item, dims=(None, (0, None)))])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Group one partition."""
        names = self.columns
        return group_sorted(
            df,
            by=names.user,
            then=(names.timestamp, names.item),
            collected=names.item,
            last=names.user_features,
        )
