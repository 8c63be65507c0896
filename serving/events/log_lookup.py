"""Keys that the workflow makes of numbers: an event has the number, as the log has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...foundation.json_file import read_json
from ...workflows.features.feature import LEVELS, FeatureSet, Number
from ...workflows.features.fitted_numbers import FittedNumbers, expected_of
from ...workflows.features.raw_values import category_of, numbers_of
from ...workflows.preprocess.fitted import read_fitted_features
from ..limits import RequestError
from ..servables.servable import WORKFLOW, Servable
from .event_numbers import a_number
from .vocabulary_lookup import Lookup, check_storable


def read_workflow(servable: Servable) -> tuple[FeatureSet, FittedNumbers, str] | None:
    """Read the features beside ids of a servable's workflow, and what its timestamp is called.

    Returns:
        None where it has no such features.
    """
    path = servable.path / WORKFLOW
    if not path.exists():
        return None
    document = read_json(path, "JSON, a fitted workflow")
    section = document.get("features") if isinstance(document, dict) else None
    if not isinstance(section, dict) or section.get("stated") is None:
        return None
    return read_fitted_features(path)


def is_of_numbers(features: FeatureSet, domain: str) -> bool:
    """Tell whether the workflow makes the keys of a domain of numbers."""
    bucketed = (number.name for of in LEVELS for number in features.bucketed(of))
    return domain in bucketed or any(domain in features.categories(of) for of in LEVELS)


def as_in_log(lookup: Lookup, features: FeatureSet, fitted: FittedNumbers) -> Lookup:
    """Have a domain take what the log has, where the workflow makes its keys of numbers."""
    for number in (number for of in LEVELS for number in features.bucketed(of)):
        if number.name == lookup.domain:
            return LogLookup(lookup, number, fitted)
    if any(lookup.domain in features.categories(of) for of in LEVELS):
        return LogLookup(lookup, None, fitted)
    return lookup


@dataclass(frozen=True)
class LogLookup:
    """A domain whose keys are buckets of numbers, or decimal numbers as text."""

    keys: Lookup
    number: Number | None
    """What buckets are made of; None for decimal numbers as text."""
    fitted: FittedNumbers
    is_text: bool = True

    @property
    def domain(self) -> str:
        """The domain's name."""
        return self.keys.domain

    @property
    def key_type(self) -> Any:
        """The arrow type of what a file of scores shows."""
        return pa.string()

    @property
    def features(self) -> dict[str, npt.NDArray[np.int64]]:
        """Nothing: these are no items."""
        return {}

    def shown(self, key: Any) -> Any:
        """Return a number as text."""
        return None if key is None else str(key)

    def example(self, place: int) -> Any:
        """Return a number that the workflow makes a key of."""
        return self.keys.example(place) if self.number is None else a_number(self._takes)

    def _takes(self, number: float) -> bool:
        assert self.number is not None
        return not self.fitted.unfit(self.number, np.array([number]))[0]

    def look_up(self, key: Any, where: str) -> int:
        """Return the id of a number, given as such or as text; of none, what the workflow has."""
        if key is not None and (isinstance(key, bool) or not isinstance(key, str | int | float)):
            raise RequestError(f"{where}: expected a number or null, received {key!r:.60}")
        if isinstance(key, str | int):
            check_storable(key, where)
        if self.number is None:
            text = pa.array([None if key is None else str(key)], pa.string())
            word = category_of(text)[0].as_py()
            found = self.keys.look_up(None if word is None else word.decode(), where)
            if not found and isinstance(key, float) and np.float32(key) == key:
                # Parquet's numbers of 32 bits come as longer ones: 12.1 as 12.100000381469727.
                narrow = category_of(pa.array([key], pa.float32()))[0].as_py()
                found = self.keys.look_up(narrow, where)
            return found
        numbers, bad = numbers_of(pa.array([key], pa.string() if isinstance(key, str) else None))
        if bad[0]:
            raise RequestError(f"{where}: expected a number, received {key!r:.60}")
        if self.fitted.unfit(self.number, numbers.fill_null(np.nan))[0]:
            raise RequestError(
                f"{where}: expected {expected_of(self.number)}, received {key!r:.60}"
            )
        (bucket,) = self.fitted.bucket_keys(self.number, numbers.fill_null(np.nan))
        return self.keys.look_up(bucket, where)
