"""The index: vectors of all items, the nearest of which are found without looking at all.

Vectors are put into as many groups as twice the root of their number, each by its nearest centre
(an inverted file, https://doi.org/10.1109/TPAMI.2010.57). Of a query the nearest groups are looked
at by numbers of 4 bits, which the processor compares 32 at once (https://arxiv.org/abs/1704.07355),
and the best of what is found there by numbers of 16 bits. Beside a graph (HNSW) groups gave the
same recall in less time, and were built in a hundredth of it: see docs/recommend.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ... import __version__
from ...foundation.digest import require_own_digest, sha256, with_own_digest
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import check_apart, read_json, staged_directory, write_text_atomically
from ..servable import MANIFEST as MODEL_MANIFEST
from ..servable import Servable

if TYPE_CHECKING:
    from .towers import Towers  # imports TensorFlow

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

EXACT_BELOW = 20_000
"""Items up to which all are looked at: it takes no longer."""
PER_GROUP = 80
"""Vectors of a group from which its centre is learned, on average."""
QUERIES = 200
"""Whose neighbours are looked for when it is settled how much is looked at."""
NEIGHBOURS = 500
RECALL = 0.97
"""Share of the nearest 500 that is to be found of these queries."""
RECALL_OF_ALL = 0.985
"""The same where all groups are looked at: what 4 bits may lose, so that half is left to groups."""
STEPS = 32
"""The number of groups that are looked at is settled to one in so many."""
SEED = 1


@dataclass
class ItemIndex:
    """An index in memory; ids are those of the towers' vocabulary of items: 1, 2, 3, ...

    >>> index = ItemIndex.build([np.eye(3, dtype=np.float32)], 3)
    >>> ids, cosines = index.search(np.array([[0.8, 0.6, 0.0]], np.float32), 2)
    >>> ids.tolist(), cosines.astype(float).round(1).tolist()
    ([[1, 2]], [[0.8, 0.6]])
    """

    faiss_index: Any
    """All vectors one after the other; or groups, and the vectors again by which it is refined."""
    recall: float
    """Share of the nearest that was found of the queries when it was built."""

    @classmethod
    def build(cls, parts: Iterable[Vectors], dim: int, users: Vectors | None = None) -> ItemIndex:
        """Make an index of the vectors of the items 1, 2, 3, ..., some of them at a time.

        By vectors of users it is settled how much is looked at; without any by items drawn at
        random, of which far less would do.
        """
        faiss = import_faiss()
        found = list(parts)
        if not found:
            raise MerlinSimError("an index should have items. Received: none.")
        vectors = np.ascontiguousarray(np.concatenate(found), np.float32)
        del found
        if len(vectors) < EXACT_BELOW:
            index = faiss.IndexFlatIP(dim)
            index.add(vectors)
            return cls(index, 1.0)
        groups = int(2 * len(vectors) ** 0.5)
        random = np.random.default_rng(SEED)
        learned = random.permutation(len(vectors))[: groups * PER_GROUP]
        made = cls(_make_groups(faiss, vectors, groups, vectors[np.sort(learned)]), 1.0)
        items = vectors[random.permutation(len(vectors))[:QUERIES]]
        queries = np.ascontiguousarray(items if users is None else users[:QUERIES], np.float32)
        count = min(NEIGHBOURS, len(vectors))
        exact = faiss.knn(queries, vectors, count, faiss.METRIC_INNER_PRODUCT)[1] + 1
        made._choose_refined(queries, count)
        made._choose_groups(queries, exact)
        return made

    def _choose_refined(self, queries: Vectors, count: int) -> None:
        """Refine twice as many until 4 bits lose little of what 16 bits say, of all groups."""
        nearest = self.exact(queries, count)
        self.faiss_index.k_factor = 2.0
        while (
            self._found(self.groups, queries, nearest) < RECALL_OF_ALL
            and self.faiss_index.k_factor * count < self.items
        ):
            self.faiss_index.k_factor *= 2

    def _choose_groups(self, queries: Vectors, exact: Ids) -> None:
        """Look at twice as many groups until enough of the nearest are found, then at fewer."""
        few, many = 0, 1
        while self._found(many, queries, exact) < RECALL and many < self.groups:
            few, many = many, min(2 * many, self.groups)
        while many - few > max(1, many // STEPS):
            half = (few + many) // 2
            if self._found(half, queries, exact) >= RECALL:
                many = half
            else:
                few = half
        self.recall = self._found(many, queries, exact)

    def _found(self, looked_at: int, queries: Vectors, exact: Ids) -> float:
        """Look at so many groups from now on; return the share of the nearest that is found."""
        self._groups.nprobe = looked_at
        return share_found(self.search(queries, exact.shape[1])[0], exact)

    @property
    def _groups(self) -> Any:
        """The part with the groups; None where all items are looked at."""
        faiss = import_faiss()
        if not isinstance(self.faiss_index, faiss.IndexRefine):
            return None
        return faiss.downcast_index(self.faiss_index.base_index)

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
        return 1 if self._groups is None else int(self._groups.nlist)

    @property
    def looked_at(self) -> int:
        """How many of them are looked at."""
        return 1 if self._groups is None else int(self._groups.nprobe)

    def search(self, queries: Vectors, count: int, widening: int = 0) -> tuple[Ids, Vectors]:
        """Return the nearest items of each query, the nearest first.

        Args:
            queries: [queries, dim].
            count: How many; fewer are found where fewer are in the groups that are looked at.
            widening: Look at four times as many groups, so often.

        Returns:
            Ids, [queries, count], -1 where there are no more; cosines.
        """
        faiss = import_faiss()
        parameters = None
        if self._groups is not None:
            looked_at = min(self.looked_at * 4**widening, self.groups)
            parameters = faiss.IndexRefineSearchParameters(
                k_factor=self.faiss_index.k_factor,
                base_index_params=faiss.SearchParametersIVF(nprobe=looked_at),
            )
        with _one_thread(faiss):
            cosines, indices = self.faiss_index.search(
                np.ascontiguousarray(queries, np.float32), count, params=parameters
            )
        return _ids(indices), cosines

    def vectors(self, ids: Ids) -> Vectors:
        """Return the vectors of items: [items, dim]."""
        found: Vectors = self._all.reconstruct_batch(ids - 1)
        return found

    def exact(self, queries: Vectors, count: int) -> Ids:
        """Return the nearest items with every one looked at: [queries, count]."""
        return _ids(self._all.search(np.ascontiguousarray(queries, np.float32), count)[1])

    @property
    def _all(self) -> Any:
        """The part with all vectors one after the other."""
        if self._groups is None:
            return self.faiss_index
        return import_faiss().downcast_index(self.faiss_index.refine_index)

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


def _ids(indices: Ids) -> Ids:
    return np.where(indices < 0, -1, indices + 1)


def _make_groups(faiss: Any, vectors: Vectors, groups: int, learned: Vectors) -> Any:
    """Put vectors into groups, each number in 4 bits, and keep them all in 16 beside.

    What is looked at for a query is more than a processor's caches hold: fewer bits are read
    sooner.
    """
    dim = vectors.shape[1]
    coarse = faiss.index_factory(dim, f"IVF{groups},PQ{dim}x4fs", faiss.METRIC_INNER_PRODUCT)
    coarse.cp.seed = coarse.pq.cp.seed = SEED
    coarse.train(learned)
    kept = faiss.IndexScalarQuantizer(
        dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
    )
    kept.train(learned)
    both = faiss.IndexRefine(coarse, kept)
    both.add(vectors)
    return both


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


def share_found(found: Ids, exact: Ids) -> float:
    """Return the share of the exact neighbours that was found, over all queries.

    >>> share_found(np.array([[1, 9], [4, 3]]), np.array([[1, 2], [3, 4]]))
    0.75
    """
    hits = [len(np.intersect1d(some, all_)) for some, all_ in zip(found, exact, strict=True)]
    return float(np.sum(hits) / exact.size)


def import_faiss() -> Any:
    """Import the library of the index."""
    try:
        import faiss
    except ImportError as error:
        raise MerlinSimError(
            "faiss is needed for an index and cannot be imported: run `make setup` in your clone "
            f"of merlin-sim, or `pip install -e '.[recommend]'` there. ({error})"
        ) from error
    return faiss


FORMAT = 2
INDEX, MANIFEST = "items.faiss", "index.json"
NEEDED = {"model": str, "sha256": str, "recall": float, "items": int}


def write_index(
    towers: Towers,
    output: Path,
    *,
    users: Vectors | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda message: None,
) -> ItemIndex:
    """Make the index of all items that the towers know, and write it.

    See :meth:`ItemIndex.build` of ``users``.
    """
    check_apart(output, [towers.servable.path])
    with staged_directory(output, overwrite=overwrite, say=say) as directory:
        index = ItemIndex.build((vectors for _, vectors in towers.items()), towers.dim, users)
        index.write(directory / INDEX)
        document = {
            "format": FORMAT,
            "merlin_sim": __version__,
            "model": digest_of(towers.servable),
            "checkpoint": towers.servable.manifest.get("checkpoint"),
            "items": index.items,
            "dim": index.dim,
            "groups": index.groups,
            "looked_at": index.looked_at,
            "recall": index.recall,
            "sha256": sha256(directory / INDEX),
        }
        write_text_atomically(directory / MANIFEST, with_own_digest(document))
    return index


def open_index(path: Path, towers: Towers) -> ItemIndex:
    """Open an index; see :func:`check_index`."""
    return ItemIndex.read(path / INDEX, check_index(path, towers.servable))


def check_index(path: Path, servable: Servable) -> float:
    """Compare an index with its digests and its model, without loading either.

    Returns the share of the nearest that it was seen to find.
    """
    manifest = path / MANIFEST
    document = read_json(manifest, "JSON, what `merlin-sim index` writes")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise MerlinSimError(
            f"{manifest}: expected format {FORMAT}, which this version of merlin-sim reads."
            " `merlin-sim index` writes it anew."
        )
    require_own_digest(manifest)
    wrong = [name for name, kind in NEEDED.items() if not isinstance(document.get(name), kind)]
    if wrong:
        raise MerlinSimError(f"{manifest}: does not say {', '.join(wrong)}.")
    if document["model"] != digest_of(servable):
        raise MerlinSimError(
            f"{path}: is an index of another model: expected one of {servable.path}. "
            "`merlin-sim index` makes it."
        )
    if not (path / INDEX).is_file() or sha256(path / INDEX) != document["sha256"]:
        raise MerlinSimError(f"{path / INDEX}: not as it was written (its SHA-256 differs).")
    return float(document["recall"])


def digest_of(servable: Servable) -> str:
    """Return what identifies a model: of its manifest, which has that of every file."""
    return sha256(servable.path / MODEL_MANIFEST)
