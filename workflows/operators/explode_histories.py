"""A user's history becomes one row for each interaction to predict."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ...sampling import sample_arrays, sample_kernels
from ...sampling.positions import (
    TEST,
    TRAIN,
    first_with_enough_taken,
    part_ends,
    part_positions,
    sample_positions,
    taken_before,
)
from ..behaviour.behaviour_columns import LABEL, POSITION, BehaviourColumns
from ..behaviour.split import PART, Split
from ..engine.backend import (
    array_module,
    is_on_gpu,
    list_column,
    lists_of,
    new_frame,
    numbers_of,
    values_of,
)
from .prefix_numbers import PrefixNumbers
from .row_operator import (
    RowOperator,
    id_column,
    id_list_column,
    number_column,
    number_list_column,
)


class ExplodeHistories(RowOperator):
    """Cut each history into its prefixes: an interaction, and what came before it.

    With labels, what came before it are the items that were taken, and the row has its label.

    Args:
        columns: The log's columns.
        mapping: ``"test"`` takes each user's last interaction, ``"train"`` all the others; with a
            split, what it says.
        longest: Interactions of a history to keep, the newest.
        least_before: Interactions that a row of ``"train"``, or of any part of a split, has before
            it at least.
        split: How the interactions were split.
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        mapping: str,
        longest: int = 100,
        least_before: int = 1,
        split: Split | None = None,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        mappings = (TRAIN, TEST) if split is None else split.mappings
        if mapping not in mappings:
            expected = " or ".join(map(repr, mappings))
            raise ValueError(f"`mapping` should be {expected}. Received: {mapping!r}.")
        self.split = split
        self.columns = columns
        self.mapping = mapping
        self.longest = longest
        self.least_before = least_before

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, and the items as a list of ids, their labels and parts."""
        parts = [PART] if self.split else []
        names = self.columns
        numbers = (*names.of_users, *names.of_interactions)
        return (*names.users, names.item, *names.labels, *parts, *numbers)

    def outputs(self) -> Schema:
        """The user's columns, the position, the target item and the history before it."""
        target, history = self.columns.targets[0], self.columns.positives[0]
        names = [*self.columns.users, POSITION, target]
        labels = [ColumnSchema(LABEL, dtype="int8")] if self.columns.labels else []
        numbers = map(number_column, self.columns.features.beside_user)
        intervals = map(number_list_column, self.columns.intervals)
        ids = [*map(id_column, names), *labels, id_list_column(history)]
        return Schema([*ids, *numbers, *intervals])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Explode one partition."""
        values, offsets = lists_of(df[self.columns.item])
        users = {name: values_of(df[name]) for name in self.columns.users}
        user, xp = users[self.columns.user], array_module(df)
        least, lists, before, labels = self.least_before, [values], None, None
        if self.columns.label is not None:
            labels, _ = lists_of(df[self.columns.label])
            before = taken_before(labels, xp)
            least = first_with_enough_taken(offsets, before, least, xp)
            lists = [values, values[labels == 1], before]
        ranges = self._ranges(df, offsets, least)
        where = (user, *ranges, 0, 0, 1)
        if is_on_gpu(df):
            rows, positions = sample_arrays.select_prefixes(*where, xp)
            cut = self._cut(sample_arrays)(*lists, offsets, rows, positions, self.longest, xp)
        else:
            rows, positions = sample_kernels.select_prefixes(*where)
            cut = self._cut(sample_kernels)(*lists, offsets, rows, positions, self.longest)
        targets, *own_labels, history, history_offsets = cut
        columns = {name: column[rows] for name, column in users.items()}
        columns[POSITION] = positions
        if own_labels:
            columns[LABEL] = own_labels[0]
        columns[self.columns.targets[0]] = targets
        columns[self.columns.positives[0]] = list_column(history, history_offsets, like=df)
        cut_numbers = PrefixNumbers(
            self.columns,
            lambda name: numbers_of(df[name]),
            lambda name: lists_of(df[name], "float64")[0],
            xp,
        )

        def cut_seconds(seconds: Any) -> tuple[Any, Any, Any]:
            of_lists = [seconds]
            if own_labels:
                of_lists = [seconds, seconds[labels == 1], before]
            made_by, more = (sample_arrays, (xp,)) if is_on_gpu(df) else (sample_kernels, ())
            where = (offsets, rows, positions, self.longest, *more)
            now, *_, then, new_offsets = self._cut(made_by)(*of_lists, *where)
            return now, then, new_offsets

        numbers, of_lists = cut_numbers(offsets, rows, positions, cut_seconds)
        columns |= numbers
        columns |= {name: list_column(*found, like=df) for name, found in of_lists.items()}
        return new_frame(columns, like=df)

    def _ranges(self, df: Any, offsets: Any, least: Any) -> tuple[Any, Any]:
        """Where the samples of each history begin and end."""
        xp = array_module(df)
        if self.split is None:
            return sample_positions(offsets[1:] - offsets[:-1], self.mapping, least, xp)
        parts, _ = lists_of(df[PART])
        part = self.split.mappings.index(self.mapping)
        before, ends = (part_ends(parts, offsets, last, xp) for last in (part - 1, part))
        return part_positions(before, ends, least, xp)

    def _cut(self, made_by: Any) -> Any:
        """What cuts out targets and histories: of a log with labels, targets' labels too."""
        return made_by.cut_taken if self.columns.labels else made_by.cut_prefixes
