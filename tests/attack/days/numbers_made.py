"""What NVTabular's operators make of numbers, said once more in plain numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MISSING = float("nan")
LARGEST = 3.4e38


class Unfit(Exception):
    """Of a number comes nothing that a model could read."""


@dataclass(frozen=True)
class Made:
    """Operators with what they have learned; None in its place where they learned no spread."""

    steps: tuple[tuple[str, Any], ...]

    @classmethod
    def fitted(cls, operators: Sequence[Any], values: Sequence[float | None]) -> Made:
        """Fit operators on numbers, one after the other."""
        steps: list[tuple[str, Any]] = []
        column = np.array([MISSING if v is None else v for v in values], np.float64)
        for stated in operators:
            name, given = next(iter(stated.items())) if isinstance(stated, dict) else (stated, {})
            step = name, _learned(name, given or {}, column[~np.isnan(column)])
            column = np.array([_step(step, value) for value in column])
            steps.append(step)
        return cls(tuple(steps))

    def __call__(self, value: float | None) -> float | None:
        """Bring a number to its range; None where nobody can tell, for want of spread.

        Raises:
            Unfit: Where it is missing, or becomes what is no number of 32 bits.
        """
        made = MISSING if value is None else float(value)
        for step in self.steps:
            if step[1] is None:
                return None
            made = _step(step, made)
        if not math.isfinite(made) or abs(made) > LARGEST:
            raise Unfit(f"{value} becomes {made}")
        return made


def _learned(name: str, given: dict[str, float], column: np.ndarray) -> Any:
    if name == "FillMissing":
        return float(given.get("fill_val", 0))
    if name == "Clip":
        return given.get("min_value", -math.inf), given.get("max_value", math.inf)
    if name == "FillMedian":
        return float(np.median(column)) if len(column) else None
    if name == "Normalize":
        spread = float(np.std(column, ddof=1)) if len(column) > 1 else 0.0
        return (float(np.mean(column)), spread) if spread > 1e-6 else None
    if name == "NormalizeMinMax":
        low, high = (float(np.min(column)), float(np.max(column))) if len(column) else (0.0, 0.0)
        return (low, high - low) if high - low > 1e-6 else None
    return ()


def _step(step: tuple[str, Any], value: float) -> float:
    name, learned = step
    if learned is None:
        return value
    if name in ("FillMissing", "FillMedian"):
        return float(learned) if math.isnan(value) else value
    if name == "Clip":
        return min(max(value, learned[0]), learned[1]) if not math.isnan(value) else value
    if name == "LogOp":
        return float(np.log(np.float32(value) + 1)) if not value <= -1 else MISSING
    return (value - learned[0]) / learned[1]
