"""Interactions become one row a user."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ..behaviour.behaviour_columns import MOMENT, BehaviourColumns
from ..behaviour.rules import ITEM_ORDER, LOG_ORDER
from ..behaviour.split import PART, Split
from ..engine.backend import array_module, frame_to_arrow, group_sorted, new_frame, ranks
from ..features.known_values import ordered_times
from .row_operator import RowOperator, id_list_column, number_column, number_list_column


class GroupHistories(RowOperator):
    """Collect each user's items, and their labels if the log has any, in the order of time.

    A partition has to hold all interactions of its users; our ``Workflow`` refuses others.

    Args:
        columns: The log's columns.
        equal_times: ``"log"`` leaves interactions of one time in the order of the table,
            ``"item"`` sorts them by the item's raw key.
        split: Adds a list that says of each interaction whose it is: train's, test's...
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        equal_times: str = LOG_ORDER,
        split: Split | None = None,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.whole_by = columns.user
        self.equal_times = equal_times
        self.split = split

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, the item, the timestamp, and the label."""
        names = self.columns
        numbers = (*names.of_users, *names.of_interactions)
        parts = () if self.split is None else self.split.columns
        return (*names.users, names.item, names.timestamp, *names.roles, *parts, *numbers)

    def outputs(self) -> Schema:
        """The user's columns, and the items as a list, and what stands beside them."""
        names = self.columns
        users = [ColumnSchema(name) for name in names.users if name not in names.beside_items]
        users += map(number_column, names.of_users)
        keys = (names.item, *names.beside_items)
        lists = [ColumnSchema(name, dims=(None, (0, None))) for name in keys]
        beside = (*names.roles, *names.moments, *names.times, *([PART] if self.split else []))
        numbers = map(number_list_column, names.of_interactions)
        return Schema([*users, *lists, *map(id_list_column, beside), *numbers])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Group one partition."""
        names = self.columns
        if names.moments:
            table = frame_to_arrow(new_frame({names.timestamp: df[names.timestamp]}, like=df))
            df = df.copy(deep=False)
            moments = ranks(table[names.timestamp].combine_chunks())
            df[MOMENT] = array_module(df).asarray(moments)
        for time in names.times:
            table = frame_to_arrow(new_frame({names.timestamp: df[names.timestamp]}, like=df))
            df = df.copy(deep=False)
            moments = ordered_times(table[names.timestamp].combine_chunks())
            df[time] = array_module(df).asarray(moments)
        if self.split is not None and not self.split.columns:
            df = self._with_parts(df, self.split)
        steady = [name for name in names.user_features if name in names.steady]
        return group_sorted(
            df,
            by=names.user,
            then=(names.timestamp, *([names.item] if self.equal_times == ITEM_ORDER else [])),
            collected=(
                names.item,
                *names.roles,
                *names.moments,
                *names.times,
                *([PART] if self.split else []),
                *names.beside_items,
                *names.of_interactions,
            ),
            last=(*steady, *names.of_users),
        )

    def _with_parts(self, df: Any, split: Split) -> Any:
        names = (self.columns.user, self.columns.timestamp)
        table = frame_to_arrow(new_frame({name: df[name] for name in names}, like=df))
        parts = split.parts(*(table[name].combine_chunks() for name in names))
        parted = df.copy(deep=False)
        parted[PART] = array_module(df).asarray(parts)
        return parted
