"""Counts and shares of a target item's keys, of what came before the sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...schemas.item_table import ItemTable
from ..behaviour.behaviour_columns import SECONDS, BehaviourColumns
from ..engine.backend import array_module, is_on_gpu, numbers_of, values_of
from ..features.event_counts import EventCounts
from ..features.feature_set import TARGET_SUFFIX
from ..features.fitted_numbers import FittedNumbers
from .row_operator import ItemTableOperator


class EncodeByTime(ItemTableOperator):
    """Put what came before a sample's own time in the place of what the whole log says.

    Args:
        columns: The log's columns.
        items: The ids of items' features.
        events: Directory of the events of each domain.
        fitted: Holds the mean share.
    """

    def __init__(
        self, columns: BehaviourColumns, items: ItemTable, events: Path, fitted: FittedNumbers
    ) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.items = items
        self.events = events
        self.numbers = fitted

    def set_storage_path(self, new_path: Any, copy: bool = False) -> None:
        """Refuse it: events lie in a directory of the run that made them."""
        raise MerlinSimError(
            "A workflow that counts what came before each sample cannot be saved: the events are "
            "kept for one run of `preprocess` alone. `FittedWorkflow.load(dataset)` makes a "
            "workflow of the dataset wherever that is."
        )

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Count for one partition."""
        features, xp = self.columns.features, array_module(df)
        place = dict(zip(self.columns.items, self.columns.targets, strict=True))
        moments = numbers_of(df[SECONDS])
        changed = df.copy(deep=False)
        for encoding in features.encodings:
            ids = values_of(df[place[encoding.column]])
            where = (ids, moments) if not is_on_gpu(df) else (ids.get(), moments.get())
            counted = EventCounts(self.events / encoding.column).before(*where)
            made = self.numbers.encode(encoding, features.smoothing, *counted)
            for name, values in made.items():
                changed[name + TARGET_SUFFIX] = xp.asarray(values)
        return changed
