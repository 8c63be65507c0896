"""Interactions become one row a user."""

from __future__ import annotations

from typing import Any

import numpy as np
from merlin.schema import ColumnSchema, Schema

from ..behaviour.behaviour_columns import MOMENT, BehaviourColumns
from ..behaviour.equal_times import hashed_order, is_hashed
from ..behaviour.rules import ITEM_ORDER, SampleRules
from ..behaviour.split import PART, Split
from ..engine.backend import array_module, frame_to_arrow, group_sorted, new_frame, ranks
from .row_operator import RowOperator, id_list_column, number_column, number_list_column

ORDER = "order within one time"


class GroupHistories(RowOperator):
    """Collect each user's items, and their labels if the log has any, in the order of time.

    A partition has to hold all interactions of its users.

    Args:
        columns: The log's columns.
        rules: Say in which order interactions of one time stand.
        split: Adds a list that says of each interaction whose it is: train's, test's...
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        rules: SampleRules | None = None,
        split: Split | None = None,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.rules = rules or SampleRules()
        self.split = split

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, the item, the timestamp, and the label."""
        names = self.columns
        numbers = (*names.of_users, *names.of_interactions)
        parts = () if self.split is None else self.split.columns
        return (*names.users, names.item, names.timestamp, *names.roles, *parts, *numbers)

    def outputs(self) -> Schema:
        """The user's columns, and the items as a list, and what stands beside them."""
        users = [ColumnSchema(name) for name in self.columns.users]
        users += map(number_column, self.columns.of_users)
        items = ColumnSchema(self.columns.item, dims=(None, (0, None)))
        beside = (*self.columns.roles, *self.columns.moments, *([PART] if self.split else []))
        numbers = map(number_list_column, self.columns.of_interactions)
        return Schema([*users, items, *map(id_list_column, beside), *numbers])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Group one partition."""
        names = self.columns
        df, order = self._with_order(df)
        if names.moments:
            table = frame_to_arrow(new_frame({names.timestamp: df[names.timestamp]}, like=df))
            df = df.copy(deep=False)
            moments = ranks(table[names.timestamp].combine_chunks())
            df[MOMENT] = array_module(df).asarray(moments)
        if self.split is not None and not self.split.columns:
            df = self._with_parts(df, self.split)
        return group_sorted(
            df,
            by=names.user,
            then=(names.timestamp, *(self.split.columns if self.split else ()), *order),
            collected=(
                names.item,
                *names.roles,
                *names.moments,
                *([PART] if self.split else []),
                *names.of_interactions,
            ),
            last=(*names.user_features, *names.of_users),
        )

    def _with_order(self, df: Any) -> tuple[Any, list[str]]:
        """Add the columns that order what has one time; gives their names too."""
        names = self.columns
        if not is_hashed(self.rules):
            return df, [names.item] if self.rules.equal_times == ITEM_ORDER else []
        keys = (names.user, names.item, names.timestamp)
        table = frame_to_arrow(new_frame({name: df[name] for name in keys}, like=df))
        ordered = df.copy(deep=False)
        order = np.asarray(hashed_order(table, names, self.rules.seed))
        ordered[ORDER] = array_module(df).asarray(order)
        return ordered, [ORDER]

    def _with_parts(self, df: Any, split: Split) -> Any:
        names = (self.columns.user, self.columns.timestamp)
        table = frame_to_arrow(new_frame({name: df[name] for name in names}, like=df))
        parts = split.parts(*(table[name].combine_chunks() for name in names))
        parted = df.copy(deep=False)
        parted[PART] = array_module(df).asarray(parts)
        return parted
