"""Numbers of interactions go through NVTabular's operators, as they were fitted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from nvtabular.ops import Operator

from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.backend import frame_from_arrow, is_on_gpu, numbers_of
from ..features.feature import INTERACTION, USER, Number
from ..features.fitted_numbers import FittedNumbers


class FittedFeatures(Operator):
    """Bring the numbers of users and interactions to their range; those in buckets become keys.

    Args:
        columns: The log's columns.
        fitted: What the operators have learned.
    """

    def __init__(self, columns: BehaviourColumns, fitted: FittedNumbers) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.fitted = fitted
        self.numbers = tuple(
            feature
            for feature in columns.features
            if isinstance(feature, Number) and feature.of in (USER, INTERACTION)
        )

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Transform one partition."""
        plain = tuple(number for number in self.numbers if number.buckets is None)
        changed = self.fitted.transform(df, plain)
        for number in self.columns.features.bucketed(USER):
            raw = numbers_of(df[number.name])
            raw = raw.get() if is_on_gpu(df) else raw
            keys = pa.array(self.fitted.bucket_keys(number, raw), pa.string())
            changed[number.name] = frame_from_arrow(pa.table({number.name: keys}))[number.name]
        return changed
