"""Features that are looked at together become one id."""

from __future__ import annotations

from typing import Any

from merlin.schema import Schema

from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.backend import array_module, list_column, values_of
from ..features.crosses import cross_ids
from .row_operator import RowOperator, id_list_column


class HashCrosses(RowOperator):
    """Add a list of one id for each cross: NVTabular's HashedCross, the same on CPU and GPU.

    Args:
        columns: The log's columns.
    """

    def __init__(self, columns: BehaviourColumns) -> None:
        """Store the argument."""
        super().__init__()
        self.columns = columns
        place = dict(zip(columns.items, columns.targets, strict=True))
        place |= {name: name for name in columns.users}
        self._crossed = {
            cross: [place[name] for name in cross.columns] for cross in columns.features.crosses
        }

    def inputs(self) -> tuple[str, ...]:
        """The columns that are crossed."""
        return tuple({name: None for names in self._crossed.values() for name in names})

    def outputs(self) -> Schema:
        """The crosses."""
        return Schema([id_list_column(cross.name) for cross in self._crossed])

    def compute_output_schema(
        self, input_schema: Schema, col_selector: Any, prev_output_schema: Schema | None = None
    ) -> Schema:
        """The input's columns and the crosses."""
        super().compute_output_schema(input_schema, col_selector)
        return input_schema + self.outputs()

    def column_mapping(self, col_selector: Any) -> dict[str, list[str]]:
        """Columns that come in go out; the crosses depend on what is crossed."""
        kept = {name: [name] for name in col_selector.names}
        return {**kept, **super().column_mapping(col_selector)}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Cross one partition."""
        xp = array_module(df)
        crossed = df.copy(deep=False)
        offsets = xp.arange(len(df) + 1, dtype=xp.int64)
        for cross, names in self._crossed.items():
            ids = cross_ids(cross, [values_of(df[name]) for name in names], xp)
            crossed[cross.name] = list_column(ids, offsets, like=df)
        return crossed
