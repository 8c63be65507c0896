"""Each interaction has what was known of its user at its time."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvtabular.ops import Operator

from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.backend import frame_from_arrow, frame_to_arrow, new_frame
from ..features.known_values import fill_as_of


class FillUsersFeatures(Operator):
    """Put the last value that was known at an interaction's time in the place of its own.

    A partition has to hold all interactions of its users, in the order of the log.

    Args:
        columns: The log's columns.
    """

    def __init__(self, columns: BehaviourColumns) -> None:
        """Store the argument."""
        super().__init__()
        self.columns = columns

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Fill one partition; its users' features are brought to the host for it."""
        names, columns = self.columns.stored_of_users, self.columns
        needed = (columns.user, columns.timestamp, *names)
        table = frame_to_arrow(new_frame({name: df[name] for name in needed}, like=df))
        users = table[columns.user].combine_chunks().dictionary_encode()
        codes, times = np.asarray(users.indices).astype(np.int64), table[columns.timestamp]
        table = fill_as_of(table, names, codes, times.combine_chunks(), columns.features)
        filled = df.copy(deep=False)
        made = frame_from_arrow(table.select(names))
        for name in names:
            filled[name] = made[name].set_axis(df.index) if hasattr(df, "index") else made[name]
        return filled
