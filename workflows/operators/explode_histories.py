"""A user's history becomes one row for each interaction to predict."""

from __future__ import annotations

from typing import Any

from merlin.schema import Schema

from ...sampling import sample_arrays, sample_kernels
from ...sampling.positions import TEST, TRAIN, sample_positions
from ..behaviour.behaviour_columns import POSITION, BehaviourColumns
from ..engine.backend import (
    array_module,
    is_on_gpu,
    list_column,
    lists_of,
    new_frame,
    values_of,
)
from .row_operator import RowOperator, id_column, id_list_column


class ExplodeHistories(RowOperator):
    """Cut each history into its prefixes: an interaction, and what came before it.

    Args:
        columns: The log's columns.
        mapping: ``"test"`` takes each user's last interaction, ``"train"`` all the others.
        longest: Interactions of a history to keep, the newest.
        least_before: Interactions that a row of ``"train"`` has before it at least.
    """

    def __init__(
        self, columns: BehaviourColumns, mapping: str, longest: int = 100, least_before: int = 1
    ) -> None:
        """Store the arguments."""
        super().__init__()
        if mapping not in (TRAIN, TEST):
            raise ValueError(f"`mapping` should be {TRAIN!r} or {TEST!r}. Received: {mapping!r}.")
        self.columns = columns
        self.mapping = mapping
        self.longest = longest
        self.least_before = least_before

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, and the items as a list of ids."""
        return (*self.columns.users, self.columns.item)

    def outputs(self) -> Schema:
        """The user's columns, the position, the target item and the history before it."""
        target, history = self.columns.targets[0], self.columns.positives[0]
        names = [*self.columns.users, POSITION, target]
        return Schema([*map(id_column, names), id_list_column(history)])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Explode one partition."""
        values, offsets = lists_of(df[self.columns.item])
        users = {name: values_of(df[name]) for name in self.columns.users}
        user, xp = users[self.columns.user], array_module(df)
        lengths = offsets[1:] - offsets[:-1]
        ranges = sample_positions(lengths, self.mapping, self.least_before, xp)
        if is_on_gpu(df):
            rows, positions = sample_arrays.select_prefixes(user, *ranges, 0, 0, 1, xp)
            cut = sample_arrays.cut_prefixes(values, offsets, rows, positions, self.longest, xp)
        else:
            rows, positions = sample_kernels.select_prefixes(user, *ranges, 0, 0, 1)
            cut = sample_kernels.cut_prefixes(values, offsets, rows, positions, self.longest)
        targets, history, history_offsets = cut
        return new_frame(
            {
                **{name: column[rows] for name, column in users.items()},
                POSITION: positions,
                self.columns.targets[0]: targets,
                self.columns.positives[0]: list_column(history, history_offsets, like=df),
            },
            like=df,
        )
