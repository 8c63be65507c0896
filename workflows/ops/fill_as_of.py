"""Each interaction has what was known of its user at its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import nvtabular as nvt

from ..engine.backend import frame_from_arrow, frame_to_arrow, new_frame
from ..features.known_values import fill_as_of
from ..logs.times import read_times
from .registry import register


@register
class FillAsOf(nvt.ops.Operator):
    """Put the last value that was known at an interaction's time in the place of its own.

    A feature that changes should not tell a sample what came later, and a missing value should not
    hide a known one. NVTabular's FillMissing knows no time. All rows of a user should stand in one
    partition, in the order of the log.

    Example usage::

        filled = ["status", "user", "time"] >> ops.FillAsOf(user="user", order="time")

    Args:
        user: The column of the users, as the log has it.
        order: The column of the times.
        cycles: By column of a time that became a point of a circle, the two columns of such a
            point: both are 0 where there is no time.
    """

    def __init__(
        self, user: str, order: str, cycles: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.user = user
        self.order = order
        self.cycles = {name: list(names) for name, names in (cycles or {}).items()}

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """The users and the times are only read."""
        read = [self.user, self.order]
        return {n: [n, *read] for n in col_selector.names if n not in read}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Fill one partition; its users' features are brought to the host for it."""
        names = [name for name in col_selector.names if name not in (self.user, self.order)]
        needed = {name: df[name] for name in (self.user, self.order, *names)}
        table = frame_to_arrow(new_frame(needed, like=df))
        users = table[self.user].combine_chunks()
        codes = np.asarray(users.dictionary_encode().indices).astype(np.int64)
        times = read_times(table[self.order].combine_chunks(), self.order)
        table = fill_as_of(table, names, codes, times, self.cycles)
        return frame_from_arrow(table.select(names))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {"user": self.user, "order": self.order, "cycles": self.cycles}
