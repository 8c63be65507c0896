"""Raw keys -> ids of one domain, as the dataset has them; no key is ever executed or guessed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..foundation.files import read_json
from ..foundation.requests import RequestError, check_storable
from ..schemas.fitted_record import histories_record
from ..schemas.item_table import ID, KEY, ItemTable
from ..schemas.layout_names import WORKFLOW_FILE
from ..workflows.feature import LEVELS, FeatureSet, Number
from ..workflows.fitted_numbers import FittedNumbers, expected_of
from ..workflows.preprocess.fitted import read_fitted_features
from ..workflows.raw_values import category_of, numbers_of

UNSEEN = 0
"""The id of a key that was not there when the workflow was fitted."""


TRIED = (1.0, 0.5, 10.0, 100.0, 0.0, 1000.0, -1.0)
"""Numbers for an example, of which the first that a workflow takes is given."""


def a_number(takes: Callable[[float], bool]) -> float:
    """Give a number for an example, which ``takes`` says is accepted, if any of some is."""
    return next(filter(takes, TRIED), TRIED[0])


class Lookup(ABC):
    """Raw keys -> ids of one domain."""

    domain: str
    is_text: bool
    """Whether keys are text; whole numbers otherwise."""
    features: Mapping[str, npt.NDArray[np.int64]] = MappingProxyType({})
    """Ids of an item's features by item id, where they are known."""

    @abstractmethod
    def look_up(self, key: Any, where: str) -> int:
        """Return the id of a key; of none, what the workflow has for features without a value."""

    @abstractmethod
    def example(self, number: int) -> Any:
        """Return a known key: another one for each number, as long as there are so many."""

    @property
    def key_type(self) -> Any:
        """The arrow type of what a file of scores shows."""
        return pa.string() if self.is_text else pa.int64()

    def shown(self, key: Any) -> Any:
        """Return a key as a file of scores shows it."""
        return key


@dataclass(frozen=True)
class VocabularyLookup(Lookup):
    """The ids of one domain.

    The keys are held in a dictionary: about 100 bytes a key, looked up in about 0.1 us.
    """

    domain: str
    ids: dict[Any, int]
    """Raw key -> id."""
    is_text: bool
    features: Mapping[str, npt.NDArray[np.int64]] = field(default_factory=dict)

    @classmethod
    def read(cls, domain: str, path: Path, features: Sequence[str] = ()) -> VocabularyLookup:
        """Read a vocabulary, and those columns of ``features`` that it has."""
        names = pq.read_schema(path).names
        by_id = {name: ItemTable(path).feature(name) for name in features if name in names}
        table = pq.read_table(path, columns=[ID, KEY])
        kind = table.schema.field(KEY).type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        keys = dict(zip(table[KEY].to_pylist(), table[ID].to_pylist(), strict=True))
        return cls(domain, keys, is_text, by_id)

    def example(self, number: int) -> Any:
        """Return a known key: another one for each number, as long as there are so many."""
        known = [*islice((key for key in self.ids if key != f"no_{self.domain}"), number + 1)]
        return known[-1] if known else None

    def look_up(self, key: Any, where: str) -> int:
        """See Lookup."""
        if key is None or key == "":
            return self.ids.get(f"no_{self.domain}", UNSEEN)
        if isinstance(key, bool) or not isinstance(key, str if self.is_text else int):
            expected = "a string" if self.is_text else "a whole number"
            raise RequestError(f"{where}: expected {expected} or null, received {key!r:.60}")
        found = self.ids.get(key)
        if found is None:
            check_storable(key, where)
        return UNSEEN if found is None else found


@dataclass(frozen=True)
class IdLookup(Lookup):
    """A domain without vocabulary: its raw keys are the ids 1..largest, everything else unseen."""

    domain: str
    largest: int
    is_text: bool = False

    def example(self, number: int) -> Any:
        """Return an id."""
        return min(number + 1, self.largest)

    def look_up(self, key: Any, where: str) -> int:
        """Return the id if it is one."""
        if key is None:
            return UNSEEN
        if isinstance(key, bool) or not isinstance(key, int):
            raise RequestError(f"{where}: expected a whole number or null, received {key!r:.60}")
        check_storable(key, where)
        return int(key) if 1 <= key <= self.largest else UNSEEN


def read_workflow(directory: Path) -> tuple[FeatureSet, FittedNumbers, str] | None:
    """Read a workflow's features other than keys, and what its timestamp is called.

    None where it has no such features. Refuses a number that is made of more than a request has.
    """
    path = directory / WORKFLOW_FILE
    if not path.exists():
        return None
    if histories_record(read_json(path, "JSON, a fitted workflow")) is None:
        return None
    features, fitted, timestamp = read_fitted_features(path)
    fitted.refuse_of_other_columns(str(path))
    return (features, fitted, timestamp) if features else None


def is_of_numbers(features: FeatureSet, domain: str) -> bool:
    """Return whether the workflow makes the keys of a domain of numbers."""
    bucketed = (number.name for of in LEVELS for number in features.bucketed(of))
    return domain in bucketed or any(domain in features.categories(of) for of in LEVELS)


def as_in_log(lookup: Lookup, features: FeatureSet, fitted: FittedNumbers) -> Lookup:
    """Have a domain take what the log has, where the workflow makes its keys of numbers."""
    if not is_of_numbers(features, lookup.domain):
        return lookup
    bucketed = {number.name: number for of in LEVELS for number in features.bucketed(of)}
    return LogLookup(lookup, bucketed.get(lookup.domain), fitted)


@dataclass(frozen=True)
class LogLookup(Lookup):
    """A domain whose keys are buckets of numbers, or decimal numbers as text."""

    keys: Lookup
    number: Number | None
    """What buckets are made of; None for decimal numbers as text."""
    fitted: FittedNumbers
    is_text: bool = True

    @property
    def domain(self) -> str:  # type: ignore[override]
        """The domain's name."""
        return self.keys.domain

    def shown(self, key: Any) -> Any:
        """Return a number as text."""
        return None if key is None else str(key)

    def example(self, number: int) -> Any:
        """Return a number that the workflow makes a key of."""
        return self.keys.example(number) if self.number is None else a_number(self._takes)

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
