"""Keys of arrow arrays: added up, ordered, and looked up by hash tables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...foundation.hashing import hash_keys
from ...schemas.dataset import natural_order
from ...schemas.item_table import ID, KEY
from ..times import is_text

ABSENT = -1
"""The position of a key that is not there."""
MOST_KEPT = 128
SUM = "sum"
LONGEST = 1 << 31
"""Bytes of strings for which offsets of 32 bits are too few."""
Array = npt.NDArray[Any]
Hashes = npt.NDArray[np.uint64]


def hashes_of(keys: pa.Array) -> Array | None:
    """A 64-bit hash of each key, equal for equal numbers of all widths; None where there is none.

    That of a number has an inverse. A null has any.

    >>> numbers = hashes_of(pa.array([7, 8], pa.int32()))
    >>> numbers.tolist() == hashes_of(pa.array([7, 8], pa.int64())).tolist()
    True
    """
    kind = keys.type
    if is_text(kind):
        return hash_keys(keys)
    if keys.null_count:
        keys = keys.fill_null(0) if not pa.types.is_boolean(kind) else keys.fill_null(False)
    if pa.types.is_floating(kind):
        numbers = keys.to_numpy(zero_copy_only=False).astype(np.float64)
        return hash_keys(pa.array((numbers + 0.0).view(np.int64)))  # 0.0 and -0.0 are one key
    if pa.types.is_boolean(kind):
        return hash_keys(keys.cast(pa.int8()))
    if pa.types.is_integer(kind):
        return hash_keys(keys)
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        return hash_keys(keys.cast(pa.int64()))
    return None


def add_up(keys: pa.Array, counts: Array) -> tuple[pa.Array, Array]:
    """Add up the counts of equal keys, none null, in the order in which they are first there.

    >>> keys, counts = add_up(pa.array(["b", "a", "b"]), np.array([2, 1, 5]))
    >>> keys.to_pylist(), counts.tolist()
    (['b', 'a'], [7, 1])
    """
    added = pa.table({KEY: keys, SUM: counts}).group_by(KEY, use_threads=False)
    found = added.aggregate([(SUM, "sum")])
    return one_array(found[KEY]), found[f"{SUM}_sum"].to_numpy()


class KeyIndex:
    """Positions of keys in an array of different keys, none null.

    >>> KeyIndex(pa.array(["b", "a"])).positions(pa.array(["a", "c", "a", None, "b"])).tolist()
    [1, -1, 1, -1, 0]
    """

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys
        self._hashes = hashes_of(keys)
        self._slots = None if self._hashes is None else _fill(self._hashes)

    def positions(self, asked: pa.Array) -> Array:
        """Give the position of each key, of the same type or null, or -1."""
        hashes = hashes_of(asked)
        if not len(self.keys) or self._slots is None or hashes is None:
            if not len(self.keys):
                return np.full(len(asked), ABSENT)
            indices = pc.index_in(asked, self.keys, skip_nulls=True).fill_null(ABSENT)
            return np.asarray(indices.to_numpy(), np.int64)
        first = self._slots[hashes & np.uint64(len(self._slots) - 1)]  # many at once: memory waits
        found: Array = _find(hashes, first, self._slots, self._hashes)
        if is_text(asked.type):  # another text may have the hash of a key; no other number has
            own = self.keys.take(pa.array(found, mask=found == ABSENT))
            found[~np.asarray(pc.equal(own, asked).fill_null(False))] = ABSENT
        if asked.null_count:
            found[np.asarray(asked.is_null())] = ABSENT
        return found


@dataclass(frozen=True)
class KeyCodes:
    """A vocabulary's keys with their codes."""

    index: KeyIndex
    first: int
    """The first key's code; those of the others follow."""

    @classmethod
    def read(cls, path: Path | str, column: str) -> KeyCodes | None:
        """Read a file; None where its codes, the index that pandas reads, do not follow."""
        if is_vocabulary(path):
            return cls(KeyIndex(read_column(Path(path), column)), 0)
        table = pq.read_table(path, columns=[column])
        index = ((table.schema.pandas_metadata or {}).get("index_columns") or [{"start": 0}])[0]
        keys = one_array(table[column])
        if isinstance(index, str) or index.get("step", 1) != 1 or len(keys) > keys.null_count > 0:
            return None
        return cls(KeyIndex(keys.drop_null()), index["start"])


_known: OrderedDict[tuple[str, str], tuple[Any, KeyCodes | None]] = OrderedDict()
_lock = threading.Lock()


def keys_of_file(path: Path | str, column: str) -> KeyCodes | None:
    """Read the keys of a parquet file's column, once in a process; see :meth:`KeyCodes.read`.

    A file is known by its path, its inode, its size and when it was changed, so another one that
    stands there later is read anew.
    """
    known = str(path), column
    stated = Path(path).stat()
    stamp = stated.st_mtime_ns, stated.st_ino, stated.st_size
    with _lock:
        found = _known.get(known)
        if found is not None and found[0] == stamp:
            _known.move_to_end(known)
            return found[1]
    keys = KeyCodes.read(path, column)
    with _lock:
        for gone in [old for old in _known if not Path(old[0]).exists()]:
            del _known[gone]
        _known[known] = stamp, keys
        while len(_known) > MOST_KEPT:
            _known.popitem(last=False)
    return keys


def is_vocabulary(path: Path | str) -> bool:
    """Return whether a file is a vocabulary of a dataset, and none of NVTabular's files."""
    return Path(path).is_file() and {ID, KEY} <= set(pq.read_schema(path).names)


def read_column(path: Path, name: str) -> pa.Array:
    """Read a column of a vocabulary: a file, or a directory of numbered ones."""
    if is_vocabulary(path):
        return one_array(pq.read_table(path, columns=[ID, KEY]).sort_by(ID)[KEY])
    files = sorted(path.iterdir(), key=natural_order) if path.is_dir() else [path]
    try:
        tables = [pq.read_table(file, columns=[name]) for file in files]
        return one_array(pa.concat_tables(tables)[name])
    except (OSError, KeyError, pa.ArrowInvalid) as error:
        raise MerlinSimError(
            f"{path}: expected a vocabulary with the column {name!r} ({error})."
        ) from error


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Make one plain array of a column, with long offsets where its strings need them."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) and column.nbytes >= LONGEST:
        column = column.cast(pa.large_string())
    return column.combine_chunks()


def _fill(hashes: Array) -> Array | None:
    """Make a table of the positions of different keys; None where two keys have one hash.

    It is twice as long as there are keys. A slot has the upper half of a key's hash, and its
    position + 1 in the lower half.
    """
    bits = max(2, int(2 * len(hashes) - 1).bit_length())
    slots = np.zeros(1 << bits, np.uint64)
    return slots if _fill_slots(hashes, slots) else None


@numba.njit(cache=True, nogil=True)
def _fill_slots(hashes: Hashes, slots: Hashes) -> bool:
    last = np.uint64(len(slots) - 1)
    low = np.uint64(0xFFFFFFFF)
    for position in range(len(hashes)):
        slot = hashes[position] & last
        while slots[slot] != 0:
            if hashes[np.int64(slots[slot] & low) - 1] == hashes[position]:
                return False
            slot = (slot + np.uint64(1)) & last
        slots[slot] = (hashes[position] & ~low) | np.uint64(position + 1)
    return True


@numba.njit(cache=True, nogil=True)
def _find(asked: Hashes, first: Hashes, slots: Hashes, known: Hashes) -> npt.NDArray[np.int64]:
    last = np.uint64(len(slots) - 1)
    low = np.uint64(0xFFFFFFFF)
    found = np.full(len(asked), ABSENT)
    for row in range(len(asked)):
        slot = asked[row] & last
        entry = first[row]
        while entry != 0:
            position = np.int64(entry & low) - 1
            if (entry ^ asked[row]) <= low and known[position] == asked[row]:
                found[row] = position
                break
            slot = (slot + np.uint64(1)) & last
            entry = slots[slot]
    return found
