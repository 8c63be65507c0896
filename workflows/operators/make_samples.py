"""What turns a user's history into samples, as one operator."""

from __future__ import annotations

from typing import Any

from merlin.schema import Schema

from ...schemas.item_table import ItemTable
from ..behaviour.behaviour_columns import BehaviourColumns
from ..behaviour.rules import SampleRules
from .draw_negatives import DrawNegatives
from .explode_histories import ExplodeHistories
from .hash_crosses import HashCrosses
from .look_up_item_features import LookUpItemFeatures
from .row_operator import ItemTableOperator, RowOperator


class MakeSamples(ItemTableOperator, RowOperator):
    """Prefixes, twins, negatives and item features in one step.

    A pure function of a table of histories (one row a user) and the rules' seed: it can stand in
    a workflow, or behind whatever else reads chunks of histories. The steps are operators of
    their own, for graphs that put something between them.

    Args:
        columns: The log's columns.
        items: What items are drawn from, and their features.
        rules: Lengths, and the seed of the draws.
        mapping: ``"train"`` or ``"test"``.
        counted_until: Where items' features are encoded: the time of the newest row that these
            encodings count. Samples have to be later, or would see their own label.
    """

    def __init__(
        self,
        columns: BehaviourColumns,
        items: ItemTable,
        rules: SampleRules,
        mapping: str,
        counted_until: float | None = None,
    ) -> None:
        """Build the steps."""
        super().__init__()
        self.explode = ExplodeHistories(
            columns,
            mapping,
            longest=rules.max_sequence_length,
            least_before=rules.shortest_sequence_for_training,
            split=rules.split,
            validates=rules.validates_last,
            feature_values=rules.feature_values,
            counted_until=counted_until,
        )
        self.items = items
        self.draw = DrawNegatives(columns, items, rules.seed, rules.drawn_by, rules.twins)
        self.look_up = LookUpItemFeatures(columns, items)
        self.cross = HashCrosses(columns)

    def read_items(self, items: ItemTable) -> None:
        """Have the steps read another table."""
        for step in (self, self.draw, self.look_up):
            step.items = items

    def inputs(self) -> tuple[str, ...]:
        """The user's columns, and the items as a list of ids, and their labels."""
        return self.explode.inputs()

    def outputs(self) -> Schema:
        """The label, the user's columns, the target item and both histories with features."""
        return self.draw.outputs() + self.look_up.outputs() + self.cross.outputs()

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Make the samples of one partition."""
        for step in (self.explode, self.draw, self.look_up, self.cross):
            df = step.transform(col_selector, df)
        return df
