"""Each interaction becomes a sample, with the negative samples that are drawn beside it."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ...foundation.row_numbers import for_each_element
from ...schemas.item_table import ItemTable
from ...schemas.users_layout import POPULARITY
from ..behaviour.behaviour_columns import LABEL, POSITION, SECONDS, BehaviourColumns
from ..engine.backend import (
    array_module,
    is_on_gpu,
    list_column,
    lists_of,
    new_frame,
    numbers_of,
    values_of,
)
from . import sample_arrays, sample_kernels
from .row_operator import (
    ItemTableOperator,
    RowOperator,
    id_column,
    id_list_column,
    number_column,
    number_list_column,
)


class DrawNegatives(ItemTableOperator, RowOperator):
    """Add twins with drawn targets, and negative histories; scatter the rows.

    An interaction of a log without labels is a positive. A positive has its twins, an item that
    was shown and not taken has none.

    A draw depends on the seed, the
    user's id, the position and the label, never on the partition. The rows come in the order of
    a hash of the same, so that rows of one user do not stand together.

    Args:
        columns: The log's columns.
        items: What the items are drawn from.
        seed: The same seed draws the same.
        negatives: ``"popularity"`` draws items from all interactions, ``"uniform"`` from all items.
        twins: How many negative samples are drawn for each positive one.
        moments: Whether rows bring their time along, which operators behind this one read.
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        items: ItemTable,
        seed: int,
        negatives: str = POPULARITY,
        twins: int = 1,
        moments: bool = False,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.items = items
        self.seed = seed
        self.negatives = negatives
        self.twins = twins
        self.moments = moments

    def inputs(self) -> tuple[str, ...]:
        """What ExplodeHistories makes."""
        target, history = self.columns.targets[0], self.columns.positives[0]
        labels = [LABEL] if self.columns.roles else []
        numbers = (*self._numbers, *self.columns.intervals)
        times = self.columns.times
        return (*self.columns.users, POSITION, *labels, target, history, *times, *numbers)

    @property
    def _numbers(self) -> tuple[str, ...]:
        """The numbers of a row, which its twins have too."""
        features = self.columns.features
        return (*features.beside_user, SECONDS) if self.moments else features.beside_user

    def outputs(self) -> Schema:
        """The label, the user's columns, the target item and both histories."""
        names = (*self.columns.users, self.columns.targets[0], *self.columns.times)
        ids = [id_column(name) for name in names]
        lists = (self.columns.positives[0], self.columns.negatives[0])
        label = ColumnSchema(LABEL, dtype="int8")
        numbers = map(number_column, self._numbers)
        intervals = map(number_list_column, self.columns.intervals)
        return Schema([label, *ids, *map(id_list_column, lists), *numbers, *intervals])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Draw for one partition."""
        names = self.columns
        users = {name: values_of(df[name]) for name in (*names.users, *names.times)}
        user, position = users[names.user], values_of(df[POSITION])
        history, offsets = lists_of(df[names.positives[0]])
        xp = array_module(df)
        if names.roles:
            labels = values_of(df[LABEL]).astype("int8")
        else:
            labels = xp.ones(len(user), xp.int8)
        rows = (user, position, labels, values_of(df[names.targets[0]]), history, offsets)
        ordered = (user, position, labels, self.seed, self.twins)
        population = self.items.population(self.negatives)
        if is_on_gpu(df):
            order = sample_arrays.order_of_samples(*ordered, xp)
            how = (order, self.twins, self.seed, population)
            drawn = sample_arrays.draw_negatives(*rows, *how, xp)
        else:
            order = sample_kernels.order_of_samples(*ordered)
            drawn = sample_kernels.draw_negatives(
                *rows,
                order,
                self.twins,
                self.seed,
                population.cumulative,
                population.first,
                population.block,
            )
        targets, positives, negatives, new_offsets = drawn
        own_rows, new_labels, _ = sample_arrays.samples_of_order(order, labels, self.twins, xp)
        numbers = {name: numbers_of(df[name])[own_rows] for name in self._numbers}
        for name in names.intervals:
            since, _ = lists_of(df[name], "float32")
            starts = for_each_element(offsets[own_rows] - new_offsets[:-1], new_offsets, xp)
            since = since[starts + xp.arange(int(new_offsets[-1]), dtype=xp.int64)]
            numbers[name] = list_column(since, new_offsets, like=df)
        return new_frame(
            {
                LABEL: new_labels.astype("int8"),
                **{name: column[own_rows] for name, column in users.items()},
                names.targets[0]: targets,
                names.positives[0]: list_column(positives, new_offsets, like=df),
                names.negatives[0]: list_column(negatives, new_offsets, like=df),
                **numbers,
            },
            like=df,
        )
