"""Numbers of interactions go through NVTabular's operators, as they were fitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from nvtabular.ops import Operator

from ..behaviour.behaviour_columns import BehaviourColumns
from ..engine.backend import array_module, frame_from_arrow, frame_to_arrow, new_frame
from ..features.feature import INTERACTION, USER, Number
from ..features.fitted_numbers import FittedNumbers, check_made


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
        """Transform one partition; the few numbers a row has are brought to the host for it."""
        changed, xp = df.copy(deep=False), array_module(df)
        for number in self.numbers:
            table = frame_to_arrow(new_frame({number.name: df[number.name]}, like=df))
            raw = np.asarray(table[number.name].combine_chunks().fill_null(np.nan))
            made = self.fitted.values(number, raw)
            check_made(number, raw, made)
            if number.buckets is None:
                changed[number.name] = xp.asarray(made)
                continue
            keys = pa.array(self.fitted.bucket_keys(number, raw), pa.string())
            changed[number.name] = frame_from_arrow(pa.table({number.name: keys}))[number.name]
        return changed
