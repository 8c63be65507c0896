"""The numbers of a sample: its user's, its interaction's, and how long ago its history was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...foundation.row_numbers import for_each_element
from ...schemas.channels import UNITS_OF_INTERVALS
from ..behaviour.behaviour_columns import SECONDS, BehaviourColumns
from ..features.feature import INTERACTION


@dataclass(frozen=True)
class PrefixNumbers:
    """Cuts numbers out of histories, as items are cut out of them.

    Args:
        columns: The log's columns.
        of_user: Gives the numbers of users, by name, [histories].
        of_interaction: Gives those of interactions, beside the items.
        xp: numpy or cupy.
    """

    columns: BehaviourColumns
    of_user: Callable[[str], Any]
    of_interaction: Callable[[str], Any]
    xp: Any

    def __call__(
        self,
        offsets: Any,
        rows: Any,
        places: Any,
        valued: Any,
        behind: Any,
        cut: Callable[[Any], tuple[Any, Any, Any]],
    ) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
        """Cut for some samples: columns of numbers, and lists as values and offsets.

        Args:
            offsets: [histories + 1] Where each history begins.
            rows: [samples] Whose history.
            places: [samples] Where each sample stands among the interactions of all histories.
            valued: [samples] Where the interaction stands whose user's numbers it has.
            behind: [samples] Where what is not before each sample begins: lags count back from it.
            cut: Gives, of the seconds of all interactions, those of the samples, those of what
                stands before them, and where each sample's begin.
        """
        found = {name: self.of_user(name)[rows] for name in self.columns.of_users}
        for name in self.columns.features.numbers(INTERACTION):
            found[name] = self.of_interaction(name)[places]
        for name in self.columns.changing_numbers:
            found[name] = self.of_interaction(name)[valued]
        for number in self.columns.features.lagging:
            values = self.of_interaction(number.name)
            for name, lag in number.lagged.items():
                # 0 where there was none: what operators bring to 0 is in the middle, or the least.
                found[name] = self.xp.where(
                    behind - offsets[rows] >= lag, values[self.xp.maximum(behind - lag, 0)], 0.0
                )
        lists = {}
        unit = self.columns.features.time_intervals
        if unit is not None:
            now, then, new_offsets = cut(self.of_interaction(SECONDS))
            since = (for_each_element(now, new_offsets, self.xp) - then) / UNITS_OF_INTERVALS[unit]
            (name,) = self.columns.intervals
            lists[name] = since.astype("float32"), new_offsets
        return found, lists
