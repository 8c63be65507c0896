"""The index: vectors of all items, the nearest of which are found without looking at all.

Vectors are put into as many groups as twice the root of their number, each by its nearest centre
(an inverted file, https://doi.org/10.1109/TPAMI.2010.57), and of a query the nearest groups are
looked at exactly. Beside a graph (HNSW) it gave the same recall in less time, and was built in a
hundredth of it: see docs/recommend.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

EXACT_BELOW = 20_000
"""Items up to which all are looked at: it takes no longer."""
PER_GROUP = 80
"""Vectors of a group from which its centre is learned, on average."""
QUERIES = 200
"""Whose neighbours are looked for when the number of groups is chosen."""
NEIGHBOURS = 500
RECALL = 0.97
"""Share of the nearest 500 that is to be found of these queries."""
STEPS = 32
"""The number of groups that are looked at is settled to one in so many."""
SEED = 1


@dataclass
class ItemIndex:
    """An index in memory; ids are those of the towers' vocabulary of items.

    >>> vectors = np.eye(3, dtype=np.float32)
    >>> index = ItemIndex.build([(np.array([1, 2, 3]), vectors)], 3)
    >>> ids, cosines, _ = index.search(np.array([[0.8, 0.6, 0.0]], np.float32), 2)
    >>> ids.tolist(), cosines.round(1).tolist()
    ([[1, 2]], [[0.8, 0.6]])
    """

    faiss_index: Any
    recall: float
    """Share of the nearest that was found of the queries when it was built."""

    @classmethod
    def build(
        cls, parts: Iterable[tuple[Ids, Vectors]], dim: int, users: Vectors | None = None
    ) -> ItemIndex:
        """Make an index.

        Args:
            parts: Ids and vectors, a part at a time.
            dim: Length of a vector.
            users: Vectors of users, by whom it is settled how many groups are looked at; None for
                items drawn at random, of which far fewer would do.
        """
        faiss = import_faiss()
        found = list(parts)
        if not found:
            raise MerlinSimError("an index should have items. Received: none.")
        ids = np.concatenate([part for part, _ in found])
        vectors = np.ascontiguousarray(np.concatenate([part for _, part in found]), np.float32)
        del found
        groups = 1 if len(ids) < EXACT_BELOW else int(2 * len(ids) ** 0.5)
        centres = faiss.IndexFlatIP(dim)
        index = _empty_index(faiss, centres, dim, groups)
        index.cp.seed = SEED
        random = np.random.default_rng(SEED)
        learned = random.permutation(len(ids))[: max(groups, groups * PER_GROUP)]
        index.train(vectors[np.sort(learned)])
        index.add_with_ids(vectors, ids)
        made = cls(index, 1.0)
        items = vectors[random.permutation(len(ids))[:QUERIES]]
        queries = np.ascontiguousarray(items if users is None else users[:QUERIES], np.float32)
        count = min(NEIGHBOURS, len(ids))
        places = faiss.knn(queries, vectors, count, faiss.METRIC_INNER_PRODUCT)[1]
        made._choose_groups(queries, ids[places])
        return made

    def _choose_groups(self, queries: Vectors, exact: Ids) -> None:
        """Look at twice as many groups until enough of the nearest are found, then at fewer."""
        few, many = 0, 1
        while not self._finds(many, queries, exact) and many < self.groups:
            few, many = many, min(2 * many, self.groups)
        while many - few > max(1, many // STEPS):
            half = (few + many) // 2
            if self._finds(half, queries, exact):
                many = half
            else:
                few = half
        self._finds(many, queries, exact)

    def _finds(self, looked_at: int, queries: Vectors, exact: Ids) -> bool:
        """Look at so many groups from now on; tell whether they have enough of the nearest."""
        self.faiss_index.nprobe = looked_at
        self.recall = share_found(self.search(queries, exact.shape[1])[0], exact)
        return self.recall >= RECALL

    @property
    def items(self) -> int:
        """How many items it holds."""
        return int(self.faiss_index.ntotal)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.faiss_index.d)

    @property
    def groups(self) -> int:
        """Into how many groups the items are put."""
        return int(self.faiss_index.nlist)

    @property
    def looked_at(self) -> int:
        """How many of them are looked at."""
        return int(self.faiss_index.nprobe)

    def search(
        self, queries: Vectors, count: int, widening: int = 0
    ) -> tuple[Ids, Vectors, Vectors]:
        """Return the nearest items of each query, the nearest first.

        Args:
            queries: [queries, dim].
            count: How many; fewer are found where fewer are in the groups that are looked at.
            widening: Look at four times as many groups, so often.

        Returns:
            Ids, [queries, count], -1 where there are no more; cosines; vectors,
            [queries, count, dim].
        """
        faiss = import_faiss()
        groups = min(self.looked_at * 4**widening, self.groups)
        with _one_thread(faiss):
            cosines, ids, vectors = self.faiss_index.search_and_reconstruct(
                np.ascontiguousarray(queries, np.float32),
                count,
                params=faiss.SearchParametersIVF(nprobe=groups),
            )
        return ids, cosines, vectors

    def exact(self, queries: Vectors, count: int) -> Ids:
        """Return the nearest items with every group looked at: [queries, count]."""
        before = self.faiss_index.nprobe
        self.faiss_index.nprobe = self.groups
        try:
            found: Ids = self.faiss_index.search(np.ascontiguousarray(queries, np.float32), count)[
                1
            ]
        finally:
            self.faiss_index.nprobe = before
        return found

    def write(self, path: Path) -> None:
        """Write it to a file."""
        import_faiss().write_index(self.faiss_index, str(path))

    @classmethod
    def read(cls, path: Path, recall: float) -> ItemIndex:
        """Read a file whose digest has been checked."""
        faiss = import_faiss()
        try:
            return cls(faiss.read_index(str(path)), recall)
        except RuntimeError as error:
            raise MerlinSimError(f"{path}: expected an index. {error}") from error


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Search on the thread that asks.

    With two threads of faiss, which wait for each other by spinning, a search for one query took a
    second of a processor where other work had the cores, in place of 3 ms; several at once did not.
    """
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _empty_index(faiss: Any, centres: Any, dim: int, groups: int) -> Any:
    """Make an index without items.

    Numbers of 16 bits are read in two thirds of the time: what is looked at is more than the
    processor's memory holds. Where every item is looked at, all of them do not matter.
    """
    if groups == 1:
        return faiss.IndexIVFFlat(centres, dim, groups, faiss.METRIC_INNER_PRODUCT)
    return faiss.IndexIVFScalarQuantizer(
        centres, dim, groups, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )


def share_found(found: Ids, exact: Ids) -> float:
    """Return the share of the exact neighbours that was found, over all queries.

    >>> share_found(np.array([[1, 9], [4, 3]]), np.array([[1, 2], [3, 4]]))
    0.75
    """
    hits = [len(np.intersect1d(some, all_)) for some, all_ in zip(found, exact, strict=True)]
    return float(np.sum(hits) / exact.size)


def import_faiss() -> Any:
    """Import the library of the index.

    Raises:
        MerlinSimError: Where it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise MerlinSimError(
            "faiss is needed for an index and cannot be imported: pip install 'merlin-sim"
            f"[recommend]'. ({error})"
        ) from error
    return faiss
