"""All histories of ids, one row a user, in files that are mapped into memory, not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..engine.backend import lists_of_arrow
from .behaviour_columns import BehaviourColumns

ITEMS = "items"
ENDS = "ends"


@dataclass(frozen=True)
class Histories:
    """A directory of raw int64 arrays; travels between processes as a path."""

    directory: Path
    columns: BehaviourColumns

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """A user's column, by history."""
        return self._map(f"user.{name}")

    @property
    def items(self) -> npt.NDArray[np.int64]:
        """The items of all histories, one after the other."""
        return self._map(ITEMS)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each history begins, and where the last one ends."""
        return np.concatenate([[0], self._map(ENDS)])

    def _map(self, name: str) -> npt.NDArray[np.int64]:
        path = self.directory / name
        if path.stat().st_size == 0:
            return np.empty(0, np.int64)
        return np.memmap(path, np.int64, "r")

    def gather(self, files: Iterable[Path]) -> None:
        """Append tables of histories, as :func:`~.encode_and_sample.encode_all` writes them."""
        self.directory.mkdir()
        names = self.columns.users
        last = 0
        writers = {name: open(self.directory / name, "wb") for name in (ITEMS, ENDS)}
        writers |= {name: open(self.directory / f"user.{name}", "wb") for name in names}
        try:
            for path in files:
                with pa.memory_map(str(path)) as source:
                    table = pa.ipc.open_file(source).read_all()
                for name in names:
                    np.asarray(table[name]).astype(np.int64).tofile(writers[name])
                values, offsets = lists_of_arrow(table[self.columns.item].combine_chunks())
                values.tofile(writers[ITEMS])
                (offsets[1:] + last).tofile(writers[ENDS])
                last += int(offsets[-1])
        finally:
            for writer in writers.values():
                writer.close()
