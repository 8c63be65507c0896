"""All histories of ids, one row a user, in files that are mapped into memory, not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...sampling.positions import TEST, TRAIN, sample_positions
from ..engine.backend import lists_of_arrow
from .behaviour_columns import BehaviourColumns

ITEMS = "items"
BEGINS = "begins"
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

    def positions(self, mapping: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the samples of a mapping begin and end in each history."""
        begins, ends = (self._map(f"{mapping}.{name}") for name in (BEGINS, ENDS))
        return begins, ends

    def _map(self, name: str) -> npt.NDArray[np.int64]:
        path = self.directory / name
        if path.stat().st_size == 0:
            return np.empty(0, np.int64)
        return np.memmap(path, np.int64, "r")

    def choose_positions(self, least_before: int) -> None:
        """Say which interactions are samples; see ``sample_positions``."""
        lengths = np.diff(self.offsets)
        for mapping in (TRAIN, TEST):
            self.write_positions(mapping, *sample_positions(lengths, mapping, least_before, np))

    def write_positions(
        self, mapping: str, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> None:
        """Keep the ranges of a mapping's samples."""
        for name, values in ((BEGINS, begins), (ENDS, ends)):
            values.astype(np.int64).tofile(self.directory / f"{mapping}.{name}")

    def count_samples(self, mapping: str) -> int:
        """How many rows a mapping has: a positive and its twin for each position."""
        begins, ends = self.positions(mapping)
        return 2 * int((ends - begins).sum())

    def gather(self, files: Iterable[Path]) -> None:
        """Append tables of histories, as :func:`~.encode_and_sample.encode_all` writes them."""
        self.fill(_read(path) for path in files)

    def fill(self, tables: Iterable[pa.Table]) -> None:
        """Append tables with the user's columns and the list of the items."""
        self.directory.mkdir(parents=True)
        names = self.columns.users
        last = 0
        writers = {name: open(self.directory / name, "wb") for name in (ITEMS, ENDS)}
        writers |= {name: open(self.directory / f"user.{name}", "wb") for name in names}
        try:
            for table in tables:
                for name in names:
                    np.asarray(table[name]).astype(np.int64).tofile(writers[name])
                values, offsets = lists_of_arrow(table[self.columns.item].combine_chunks())
                values.tofile(writers[ITEMS])
                (offsets[1:] + last).tofile(writers[ENDS])
                last += int(offsets[-1])
        finally:
            for writer in writers.values():
                writer.close()


def _read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
