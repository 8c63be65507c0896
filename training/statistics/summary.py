"""Mean and spread of a measure over runs that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .kolmogorov_smirnov import Tested, normality


@dataclass(frozen=True)
class Summary:
    """What some values are, in short."""

    count: int
    mean: float
    deviation: float | None
    """Standard deviation, by one less than the count; None of a single value."""
    smallest: float
    largest: float
    normality: Tested | None
    """Whether they can be normal; None of fewer than 4."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise at least one value.

        >>> summary = Summary.of([1.0, 2.0, 3.0])
        >>> summary.mean, summary.deviation
        (2.0, 1.0)
        """
        return cls(
            count=len(values),
            mean=float(np.mean(values)),
            deviation=float(np.std(values, ddof=1)) if len(values) > 1 else None,
            smallest=float(min(values)),
            largest=float(max(values)),
            normality=normality(values),
        )
