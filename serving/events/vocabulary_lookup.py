"""Raw keys -> ids of one domain, as the dataset has them; no key is ever executed or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..limits import RequestError

ID, KEY = "id", "key"
UNSEEN = 0
"""The id of a key that was not there when the workflow was fitted."""


def check_storable(key: str | int, where: str) -> None:
    """Refuse a key that no log can hold, nor a file of scores or a store of histories.

    Raises:
        RequestError: Where it has a lone surrogate, or more than 64 bits.
    """
    if isinstance(key, int):
        if not -(2**63) <= key < 2**63:
            raise RequestError(f"{where}: expected a whole number of 64 bits, received {key!r:.60}")
        return
    try:
        key.encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"{where}: expected text, received a lone surrogate in {key!a:.60}"
        ) from None


@dataclass(frozen=True)
class VocabularyLookup:
    """The ids of one domain.

    The keys are held in a dictionary: about 100 bytes a key, looked up in about 0.1 us.
    """

    domain: str
    ids: dict[Any, int]
    """Raw key -> id."""
    is_text: bool
    features: dict[str, npt.NDArray[np.int64]]
    """Ids of an item's features by item id; id 0 has 0."""

    @classmethod
    def read(cls, domain: str, path: Path, features: Sequence[str] = ()) -> VocabularyLookup:
        """Read a vocabulary, and those columns of ``features`` that it has."""
        names = pq.read_schema(path).names
        found = [name for name in features if name in names]
        table = pq.read_table(path, columns=[ID, KEY, *found])
        ids = np.asarray(table[ID])
        by_id = {}
        for name in found:
            by_id[name] = np.zeros(ids.max(initial=0) + 1, np.int64)
            by_id[name][ids] = np.asarray(table[name])
        kind = table.schema.field(KEY).type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        keys = dict(zip(table[KEY].to_pylist(), ids.tolist(), strict=True))
        return cls(domain, keys, is_text, by_id)

    @property
    def key_type(self) -> Any:
        """The arrow type of its keys."""
        return pa.string() if self.is_text else pa.int64()

    def shown(self, key: Any) -> Any:
        """Return a key as a file of scores shows it."""
        return key

    def example(self, place: int) -> Any:
        """Return a known key: another one for each place, as long as there are so many."""
        known = [*islice((key for key in self.ids if key != f"no_{self.domain}"), place + 1)]
        return known[-1] if known else None

    def look_up(self, key: Any, where: str) -> int:
        """Return the id of a key; of none, what the workflow has for features without a value.

        Args:
            key: A key as the log has it, or None.
            where: What the key is, for messages.
        """
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
class IdLookup:
    """A domain without vocabulary: its raw keys are the ids 1..largest, everything else unseen."""

    domain: str
    largest: int
    is_text: bool = False

    @property
    def key_type(self) -> Any:
        """The arrow type of its keys."""
        return pa.int64()

    @property
    def features(self) -> dict[str, npt.NDArray[np.int64]]:
        """Nothing is known of an item."""
        return {}

    def shown(self, key: Any) -> Any:
        """Return a key as a file of scores shows it."""
        return key

    def example(self, place: int) -> Any:
        """Return an id."""
        return min(place + 1, self.largest)

    def look_up(self, key: Any, where: str) -> int:
        """Return the id if it is one."""
        if key is None:
            return UNSEEN
        if isinstance(key, bool) or not isinstance(key, int):
            raise RequestError(f"{where}: expected a whole number or null, received {key!r:.60}")
        check_storable(key, where)
        return int(key) if 1 <= key <= self.largest else UNSEEN


class Lookup(Protocol):
    """Raw keys -> ids of one domain."""

    @property
    def domain(self) -> str:
        """The domain's name."""

    @property
    def is_text(self) -> bool:
        """Whether keys are text; whole numbers otherwise."""

    @property
    def key_type(self) -> Any:
        """The arrow type of its keys."""

    @property
    def features(self) -> dict[str, npt.NDArray[np.int64]]:
        """Ids of an item's features by item id, where they are known."""

    def look_up(self, key: Any, where: str) -> int:
        """Return the id of a key."""

    def shown(self, key: Any) -> Any:
        """Return a key as a file of scores shows it."""

    def example(self, place: int) -> Any:
        """Return a known key: another one for each place, as long as there are so many."""
