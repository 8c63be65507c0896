"""Interactions become one row a user."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from merlin.schema import ColumnSchema, Schema

from ..behaviour.behaviour_columns import MOMENT, BehaviourColumns
from ..behaviour.equal_times import hashed_order, is_hashed
from ..behaviour.rules import ITEM_ORDER, SampleRules
from ..behaviour.split import PART, Split
from ..engine.backend import array_module, frame_to_arrow, group_sorted, new_frame
from ..features.known_values import ordered_times
from ..logs.times import read_times
from .row_operator import RowOperator, id_list_column, number_column, number_list_column

ORDER = "order within one time"


class GroupHistories(RowOperator):
    """Collect each user's items, and their labels if the log has any, in the order of time.

    A partition has to hold all interactions of its users; our ``Workflow`` refuses others. Times
    may be text: they are read as those of a file are.

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
        self.whole_by = columns.user
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
        names, xp = self.columns, array_module(df)
        df = df.copy(deep=False)
        users, given = self._column(df, names.user), self._column(df, names.timestamp)
        times = read_times(given, names.timestamp)
        if times is not given:  # they were text, whose order is not that of time
            df[names.timestamp] = xp.asarray(np.asarray(times.cast(pa.int64())))
        order = self._order(df, users, times)
        if names.moments:
            df[MOMENT] = xp.asarray(ordered_times(times))
        for time in names.times:
            df[time] = xp.asarray(ordered_times(times))
        if self.split is not None and not self.split.columns:
            df[PART] = xp.asarray(self.split.parts(users, times))
        steady = [name for name in names.user_features if name in names.steady]
        return group_sorted(
            df,
            by=names.user,
            then=(names.timestamp, *(self.split.columns if self.split else ()), *order),
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

    def _order(self, df: Any, users: pa.Array, times: pa.Array) -> list[str]:
        """Name the columns that order what has one time; adds one where a hash does."""
        names = self.columns
        if not is_hashed(self.rules):
            return [names.item] if self.rules.equal_times == ITEM_ORDER else []
        columns = {names.user: users, names.item: self._column(df, names.item)}
        rows = pa.table({**columns, names.timestamp: times})
        order = np.asarray(hashed_order(rows, names, self.rules.seed))
        df[ORDER] = array_module(df).asarray(order)
        return [ORDER]

    def _column(self, df: Any, name: str) -> pa.Array:
        """A column on the host."""
        return frame_to_arrow(new_frame({name: df[name]}, like=df))[name].combine_chunks()
