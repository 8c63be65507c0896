"""A user's history becomes one row for each interaction to predict."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ..behaviour.behaviour_columns import LABEL, POSITION, SECONDS, BehaviourColumns
from ..behaviour.interaction_roles import (
    JOINS,
    POSITIVE,
    SAMPLE,
    SamplePlaces,
    first_of_moments,
    first_with_enough_taken,
    sample_places,
)
from ..behaviour.positions import last_mappings, part_ends, part_positions, sample_positions
from ..behaviour.rules import AS_OF_SAMPLE, LATEST
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
from ..features.event_counts import refuse_counted
from . import sample_arrays, sample_kernels
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

    With labels or behaviours, interactions to predict are those that are samples, what came
    before them is what joined the history, and the row has its label. Where ``columns`` exclude
    a sample's own time, what came before it is of earlier times.

    Args:
        columns: The log's columns.
        mapping: ``"test"`` takes each user's last interaction, ``"train"`` all the others; with a
            split, what it says.
        validates: Whether the interaction before the last one is ``"validation"``'s, without a
            split.
        longest: Interactions of a history to keep, the newest.
        least_before: Interactions that a row of ``"train"``, or of any part of a split, has before
            it at least.
        split: How the interactions were split.
        feature_values: Whether a sample has what was known of its user at its own time, or the
            latest.
        counted_until: Refuse samples of this time, in seconds, and before.
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        mapping: str,
        longest: int = 100,
        least_before: int = 1,
        split: Split | None = None,
        validates: bool = False,
        feature_values: str = AS_OF_SAMPLE,
        counted_until: float | None = None,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        mappings = last_mappings(validates) if split is None else split.mappings
        if mapping not in mappings:
            expected = " or ".join(map(repr, mappings))
            raise ValueError(f"`mapping` should be {expected}. Received: {mapping!r}.")
        self.split = split
        self.validates = validates
        self.columns = columns
        self.mapping = mapping
        self.longest = longest
        self.least_before = least_before
        self.feature_values = feature_values
        self.counted_until = counted_until

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, and the items as a list of ids, their labels and parts."""
        parts = [PART] if self.split else []
        names = self.columns
        numbers = (*names.of_users, *names.of_interactions)
        beside = (*names.roles, *names.moments, *names.times, *parts)
        return (*names.users, names.item, *beside, *numbers)

    def outputs(self) -> Schema:
        """The user's columns, the position, the target item and the history before it."""
        target, history = self.columns.targets[0], self.columns.positives[0]
        names = [*self.columns.users, POSITION, target]
        labels = [ColumnSchema(LABEL, dtype="int8")] if self.columns.roles else []
        numbers = map(number_column, self.columns.features.beside_user)
        intervals = map(number_list_column, self.columns.intervals)
        ids = [*map(id_column, (*names, *self.columns.times)), *labels, id_list_column(history)]
        return Schema([*ids, *numbers, *intervals])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Explode one partition."""
        values, offsets = lists_of(df[self.columns.item])
        beside = self.columns.beside_items
        users = {name: values_of(df[name]) for name in self.columns.users if name not in beside}
        user, xp = users[self.columns.user], array_module(df)
        found, joins, moments = None, None, None
        if self.columns.indexes_samples:
            roles = xp.ones(len(values), xp.int64) * (JOINS | SAMPLE | POSITIVE)
            for name in self.columns.roles:
                roles = self.columns.roles_of(lists_of(df[name])[0])
            for moment in self.columns.moments:
                moments = lists_of(df[moment])[0]
            found, joins = sample_places(roles, offsets, xp, moments), (roles & JOINS) > 0
        made_by: Any = sample_arrays if is_on_gpu(df) else sample_kernels
        more = (xp,) if is_on_gpu(df) else ()
        rows, positions = made_by.select_prefixes(
            user, *self._ranges(df, offsets, found), 0, 0, 1, *more
        )
        where = (rows, positions, self.longest, *more)

        def cut(numbers: Any) -> tuple[Any, ...]:
            """What the samples are, their labels, and what was before them."""
            if found is None:
                return (*made_by.cut_prefixes(numbers, offsets, *where),)
            lists = (numbers, found.places, numbers[joins], found.before, found.positives)
            return (*made_by.cut_taken(*lists, found.begins, found.offsets, *where),)

        targets, *own_labels, history, history_offsets = cut(values)
        columns = {name: column[rows] for name, column in users.items()}
        columns[POSITION] = positions
        if self.columns.roles:
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
            now, *_, then, new_offsets = cut(seconds)
            return now, then, new_offsets

        places = offsets[rows] + positions
        if found is not None:
            places = found.places[found.offsets[rows] + positions]
        if self.counted_until is not None:
            seconds = lists_of(df[SECONDS], "float64")[0][places]
            refuse_counted("the log", seconds, self.counted_until)
        valued = places if self.feature_values != LATEST else offsets[rows + 1] - 1
        for name in beside:
            chosen = places if name in self.columns.contexts else valued
            columns[name] = lists_of(df[name])[0][chosen]
        for name in self.columns.times:
            columns[name] = lists_of(df[name])[0][places]
        behind = places
        if moments is not None:
            behind = first_of_moments(moments, offsets, xp)[places]
        numbers, of_lists = cut_numbers(offsets, rows, places, valued, behind, cut_seconds)
        columns |= numbers
        columns |= {name: list_column(*found, like=df) for name, found in of_lists.items()}
        return new_frame(columns, like=df)

    def _ranges(self, df: Any, offsets: Any, found: SamplePlaces | None) -> tuple[Any, Any]:
        """Where the samples of each history begin and end."""
        xp, least, parted = array_module(df), self.least_before, slice(None)
        if found is not None:
            least = first_with_enough_taken(found, least, xp)
            parted, offsets = found.places, found.offsets
        if self.split is None:
            lengths = offsets[1:] - offsets[:-1]
            return sample_positions(lengths, self.mapping, least, xp, self.validates)
        parts = lists_of(df[PART])[0][parted]
        part = self.split.mappings.index(self.mapping)
        before, ends = (part_ends(parts, offsets, last, xp) for last in (part - 1, part))
        return part_positions(before, ends, least, xp)
