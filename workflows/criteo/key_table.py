"""Keys and ids of a column on disk, looked up without being read into memory as a whole."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...foundation.atomic_write import whole_file, write_array
from ...foundation.exceptions import MerlinSimError
from ...schemas.item_table import ID, KEY
from ...schemas.parquet.row_pieces import file_pieces
from . import key_kernels

Array = np.ndarray[Any, Any]
KEYS_PER_BUCKET = 4
MOST_BEGIN_BITS = 20
KEYS_AT_ONCE = 1 << 20


class KeyTableWriter:
    """Writes a table in pieces, their scattered keys in order; it is whole in the end, or none."""

    def __init__(self, directory: Path, column: str) -> None:
        """Say which table."""
        self._paths = _files(directory, column)
        self._files: list[BinaryIO] = []
        self._opened = ExitStack()

    def write(self, mixed: Array, ids: Array) -> None:
        """Append keys.

        Args:
            mixed: Scattered keys, uint32, each above all before.
            ids: int32.
        """
        for file, array in zip(self._files, (mixed, ids), strict=True):
            write_array(file, array)

    def __enter__(self) -> KeyTableWriter:
        """Open the files."""
        with self._opened as opened:
            for path in self._paths:
                whole = opened.enter_context(whole_file(path))
                self._files.append(opened.enter_context(open(whole, "wb")))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the files; they have their names where there was no error."""
        self._opened.__exit__(kind, error, trace)


@dataclass(frozen=True)
class KeyTable:
    """The table of a column; travels to workers as a path."""

    directory: Path
    column: str

    def look_up(self, keys: Array) -> Array:
        """Return the ids of keys, 0 for those that are missing (negative) or unknown."""
        ids: Array = key_kernels.look_up(keys, *self._opened())
        return ids

    def _opened(self) -> tuple[Array, Array, Array, int]:
        # A process may make a table anew at the same place.
        made = _files(self.directory, self.column)[0].stat().st_mtime_ns
        return _open(self.directory, self.column, made)


def table_of_vocabulary(directory: Path, column: str, vocabulary: Path) -> KeyTable:
    """Make the table of a column whose ids were given before.

    Args:
        directory: Where to make it.
        column: Its name.
        vocabulary: The parquet file of its keys, in the order in which they are scattered.

    Raises:
        MerlinSimError: Where the file is not one of those that preprocessing writes.
    """
    last = -1
    with KeyTableWriter(directory, column) as writer, pq.ParquetFile(vocabulary) as file:
        for batch in file_pieces(file, [ID, KEY], KEYS_AT_ONCE):
            mixed = key_kernels.scatter_all(_keys_of(vocabulary, batch[KEY]))
            if len(mixed) and (int(mixed[0]) <= last or (mixed[1:] <= mixed[:-1]).any()):
                raise MerlinSimError(
                    f"{vocabulary}: expected keys in the order in which `preprocess criteo` "
                    "writes them, found another order."
                )
            last = int(mixed[-1]) if len(mixed) else last
            writer.write(mixed, np.asarray(batch[ID]).astype(np.int32))
    return KeyTable(directory, column)


def _keys_of(vocabulary: Path, texts: pa.Array) -> Array:
    """Read keys of 8 hexadecimal digits."""
    lengths = pc.binary_length(texts)
    if len(texts) and (pc.min(lengths).as_py(), pc.max(lengths).as_py()) != (8, 8):
        raise MerlinSimError(f"{vocabulary}: expected keys of 8 hexadecimal digits, found others.")
    joined = b"".join(text.encode() for text in texts.to_pylist())
    try:
        return np.frombuffer(bytes.fromhex(joined.decode()), ">u4").astype(np.int64)
    except ValueError as error:
        raise MerlinSimError(
            f"{vocabulary}: expected keys of hexadecimal digits ({error})."
        ) from error


def _files(directory: Path, column: str) -> tuple[Path, Path]:
    return directory / f"{column}.mixed", directory / f"{column}.ids"


@lru_cache(maxsize=64)
def _open(directory: Path, column: str, made: int) -> tuple[Array, Array, Array, int]:
    """Map a table into memory, with where the keys of the same first bits begin."""
    keys_file, ids_file = _files(directory, column)
    mixed, ids = _mapped(keys_file, np.uint32), _mapped(ids_file, np.int32)
    bits = min(MOST_BEGIN_BITS, max(1, (len(mixed) // KEYS_PER_BUCKET).bit_length()))
    borders = np.arange(1 << bits, dtype=np.uint64) << np.uint64(key_kernels.BITS - bits)
    begins = np.searchsorted(mixed, borders.astype(np.uint32))
    return mixed, ids, np.append(begins, len(mixed)).astype(np.int64), bits


def _mapped(path: Path, dtype: Any) -> Array:
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))
