"""Interactions become one row a user."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ..behaviour.behaviour_columns import BehaviourColumns
from ..behaviour.rules import ITEM_ORDER, LOG_ORDER
from ..engine.backend import group_sorted
from .row_operator import RowOperator, id_list_column


class GroupHistories(RowOperator):
    """Collect each user's items, and their labels if the log has any, in the order of time.

    A partition has to hold all interactions of its users.

    Args:
        columns: The log's columns.
        equal_times: ``"log"`` leaves interactions of one time in the order of the table,
            ``"item"`` sorts them by the item's raw key.
    """

    def __init__(self, columns: BehaviourColumns, equal_times: str = LOG_ORDER) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.equal_times = equal_times

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, the item, the timestamp, and the label."""
        names = self.columns
        return (*names.users, names.item, names.timestamp, *names.labels)

    def outputs(self) -> Schema:
        """The user's columns, and the items as a list, and the labels."""
        users = [ColumnSchema(name) for name in self.columns.users]
        items = ColumnSchema(self.columns.item, dims=(None, (0, None)))
        return Schema([*users, items, *map(id_list_column, self.columns.labels)])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Group one partition."""
        names = self.columns
        return group_sorted(
            df,
            by=names.user,
            then=(names.timestamp, *([names.item] if self.equal_times == ITEM_ORDER else [])),
            collected=(names.item, *names.labels),
            last=names.user_features,
        )
