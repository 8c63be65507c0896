"""Items bring their features along."""

from __future__ import annotations

from typing import Any

from merlin.schema import Schema

from ...foundation.exceptions import MerlinSimError
from ...foundation.row_numbers import for_each_element
from ...schemas.item_table import ItemTable
from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.backend import array_module, is_on_gpu, list_column, lists_of, values_of
from ..features.feature import ITEM
from ..features.feature_set import TARGET_SUFFIX
from ..features.item_values import ItemValues
from .row_operator import (
    ItemTableOperator,
    RowOperator,
    id_column,
    id_list_column,
    number_column,
    number_list_column,
)


class LookUpItemFeatures(ItemTableOperator, RowOperator):
    """Add to the target item and to both histories the columns of the item's features.

    Args:
        columns: The log's columns.
        items: The features' ids by item id.
        values: Those of features that change, by item and time; without them every sample has
            the last known ones.
    """

    def __init__(
        self, columns: BehaviourColumns, items: ItemTable, values: ItemValues | None = None
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.items = items
        self.values = values

    def set_storage_path(self, new_path: Any, copy: bool = False) -> None:
        """Take the table along; values by time lie in a directory of the run that made them."""
        if self.values is not None:
            raise MerlinSimError(
                "A workflow that looks up items' values by time cannot be saved: they are kept for "
                "one run of `preprocess` alone. `FittedWorkflow.load(dataset)` makes a workflow "
                "of the dataset wherever that is."
            )
        super().set_storage_path(new_path, copy)

    def inputs(self) -> tuple[str, ...]:
        """The columns of item ids."""
        names = self.columns
        times = names.times if self.values is not None else ()
        return (names.targets[0], names.positives[0], names.negatives[0], *times)

    def compute_output_schema(
        self, input_schema: Schema, col_selector: Any, prev_output_schema: Schema | None = None
    ) -> Schema:
        """The input's columns and the features'."""
        super().compute_output_schema(input_schema, col_selector)
        return input_schema + self.outputs()

    def outputs(self) -> Schema:
        """The columns of the features' ids."""
        names = self.columns
        lists = (*names.positives[1:], *names.negatives[1:])
        ids = [*map(id_column, names.targets[1:]), *map(id_list_column, lists)]
        features = names.features
        of_items = (*features.numbers(ITEM), *features.encoded)
        numbers = map(number_column, (name + TARGET_SUFFIX for name in of_items))
        vectors = [number_list_column(v.name + TARGET_SUFFIX) for v in features.vectors]
        return Schema(
            [*ids, *numbers, *vectors, *map(id_list_column, (f.name for f in features.lists))]
        )

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """Columns that come in go out; the features' columns depend on the items'."""
        kept = {name: [name] for name in col_selector.names}
        return {**kept, **super().column_mapping(col_selector)}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Look up for one partition."""
        names = self.columns
        found = df.copy(deep=False)
        for place, feature in enumerate(names.item_features, start=1):
            table = self.items.feature(feature)
            targets = values_of(df[names.targets[0]])
            found[names.targets[place]] = self._known(feature, table, targets, df)
            for columns in (names.positives, names.negatives):
                items, offsets = lists_of(df[columns[0]])
                ids = self._known(feature, table, items, df, offsets)
                found[columns[place]] = list_column(ids, offsets, like=df)
        targets = values_of(df[names.targets[0]])
        for name in (*names.features.numbers(ITEM), *names.features.encoded):
            numbers = self._known(name, self.items.numbers(name), targets, df)
            found[name + TARGET_SUFFIX] = numbers
        widths = {feature.name: feature.size for feature in names.features.vectors}
        for name, width in widths.items():
            rows = self.items.vectors(name, width)
            found[name + TARGET_SUFFIX] = self._rows_of(name, rows, targets, df)
        lengths = {feature.name: feature.longest for feature in names.features.lists}
        for name, longest in lengths.items():
            lists = self.items.lists(name, longest)
            found[name] = self._rows_of(name, lists, targets, df)
        return found

    def _known(self, name: str, table: Any, items: Any, df: Any, offsets: Any = None) -> Any:
        """Give items the values that were known at their samples' time.

        Args:
            name: The feature, as it is stored.
            table: By item, the last known values.
            items: [elements] Their ids.
            df: The samples.
            offsets: [samples + 1] Where each sample's items begin; None for one each.
        """
        xp = array_module(df)
        if self.values is None or not self.values.changes(name):
            return xp.asarray(table)[items]
        (time,) = self.columns.times
        times = values_of(df[time])
        times = times if offsets is None else for_each_element(times, offsets, xp)
        where = (items.get(), times.get()) if is_on_gpu(df) else (items, times)
        return xp.asarray(self.values.at(name, *where, table))

    def _rows_of(self, name: str, table: Any, targets: Any, like: Any) -> Any:
        """Give each target item its row, as a column of lists of one length."""
        xp, width = array_module(like), table.shape[1]
        rows = self._known(name, table, targets, like).reshape(-1)
        offsets = xp.arange(len(targets) + 1, dtype=xp.int64) * width
        return list_column(rows, offsets, like=like)
