"""Each interaction becomes a positive and its negative twin."""

from __future__ import annotations

from typing import Any

from merlin.schema import ColumnSchema, Schema

from ...sampling import sample_arrays, sample_kernels
from ...sampling.item_table import ItemTable
from ...schemas.users_layout import POPULARITY
from ..behaviour.behaviour_columns import LABEL, POSITION, BehaviourColumns
from ..engine.backend import (
    array_module,
    is_on_gpu,
    list_column,
    lists_of,
    new_frame,
    values_of,
)
from .row_operator import RowOperator, id_column, id_list_column


class DrawNegatives(RowOperator):
    """Add the twin with a drawn target, and negative histories; scatter the rows.

    A draw depends on the seed, the
    user's id, the position and the label, never on the partition. The rows come in the order of
    a hash of the same, so that rows of one user do not stand together.

    Args:
        columns: The log's columns.
        items: What the items are drawn from.
        seed: The same seed draws the same.
        negatives: ``"popularity"`` draws items from all interactions, ``"uniform"`` from all items.
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        items: ItemTable,
        seed: int,
        negatives: str = POPULARITY,
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.items = items
        self.seed = seed
        self.negatives = negatives

    def inputs(self) -> tuple[str, ...]:
        """What ExplodeHistories makes."""
        target, history = self.columns.targets[0], self.columns.positives[0]
        return (*self.columns.users, POSITION, target, history)

    def outputs(self) -> Schema:
        """The label, the user's columns, the target item and both histories."""
        ids = [id_column(name) for name in (*self.columns.users, self.columns.targets[0])]
        lists = (self.columns.positives[0], self.columns.negatives[0])
        return Schema([ColumnSchema(LABEL, dtype="int8"), *ids, *map(id_list_column, lists)])

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Draw for one partition."""
        names = self.columns
        users = {name: values_of(df[name]) for name in names.users}
        user, position = users[names.user], values_of(df[POSITION])
        history, offsets = lists_of(df[names.positives[0]])
        rows = (user, position, values_of(df[names.targets[0]]), history, offsets)
        population = self.items.population(self.negatives)
        if is_on_gpu(df):
            xp = array_module(df)
            order = sample_arrays.order_of_twins(user, position, self.seed, xp)
            drawn = sample_arrays.draw_negatives(*rows, order, self.seed, population, xp)
        else:
            order = sample_kernels.order_of_twins(user, position, self.seed)
            drawn = sample_kernels.draw_negatives(
                *rows,
                order,
                self.seed,
                population.cumulative,
                population.first,
                population.block,
            )
        targets, positives, negatives, new_offsets = drawn
        return new_frame(
            {
                LABEL: (order & 1).astype("int8"),
                **{name: column[order >> 1] for name, column in users.items()},
                names.targets[0]: targets,
                names.positives[0]: list_column(positives, new_offsets, like=df),
                names.negatives[0]: list_column(negatives, new_offsets, like=df),
            },
            like=df,
        )
