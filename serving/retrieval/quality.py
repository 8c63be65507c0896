"""Retrieval and the whole, compared with what is plainer, on clicks that were held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from ...dataloader.loader import ONCE_MB
from ...dataloader.open_loader import open_loader
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter
from ...foundation.ranks import Ranks
from ...schemas.channels import (
    CONTEXT_FEATURES,
    LABEL,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
)
from ...schemas.dataset import DatasetDirectory
from ...schemas.layout_names import CATEGORIES, TRAIN
from ...workflows.vocabularies import Vocabularies
from ..settings import RETRIEVED
from .index import Ids, share_found
from .recommender import Ranker, Recommender
from .users import UserHistory


def recall(ranks: Ids, most: int) -> float:
    """Return the share of users whose item is among the first ones; rank -1 where it is nowhere.

    >>> recall(np.array([0, 3, -1, 20]), 20)
    0.5
    """
    return float(np.mean((ranks >= 0) & (ranks < most)))


def ndcg(ranks: Ids, most: int) -> float:
    """Return the normalised discounted cumulative gain, of one item: 1 / log2(2 + its rank).

    >>> ndcg(np.array([0, 2, -1, 30]), 20)
    0.375
    """
    found = (ranks >= 0) & (ranks < most)
    gains = np.where(found, 1 / np.log2(2.0 + np.maximum(ranks, 0)), 0.0)
    return float(np.mean(gains))


def coverage(answers: Sequence[Ids], most: int, items: int) -> float:
    """Return the share of all items that are among the first ones of some answer.

    >>> coverage([np.array([1, 2, 3]), np.array([2, 4, 5])], 2, 10)
    0.3
    """
    seen = {int(item) for answer in answers for item in answer[:most]}
    return len(seen) / items


ROWS_PER_BATCH = 4096


@dataclass(frozen=True)
class HeldOutClicks:
    """Clicked rows, as ids."""

    histories: Ids
    """[rows, positions] Items, oldest first, 0 on the left."""
    targets: Ids
    """[rows] The item that was taken."""
    users: dict[str, Ids]
    """Column -> [rows]."""

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Ids) -> HeldOutClicks:
        """Choose rows."""
        users = {name: ids[rows] for name, ids in self.users.items()}
        return HeldOutClicks(self.histories[rows], self.targets[rows], users)

    def in_ids(self, of_ids: Ids) -> HeldOutClicks:
        """Give items other ids: ``of_ids`` has the new id of each."""
        return HeldOutClicks(of_ids[self.histories], of_ids[self.targets], self.users)


class ClickedRows:
    """Reads the clicked rows of a dataset."""

    def __init__(self, dataset: DatasetDirectory) -> None:
        channels = dataset.channels
        if not channels.get(POSITIVE_HISTORY) or not channels.get(TARGET_ITEM_FEATURES):
            raise MerlinSimError(f"{dataset.path}: expected users with histories of items.")
        self.dataset = dataset
        self.item = channels[TARGET_ITEM_FEATURES][0]
        self.history = channels[POSITIVE_HISTORY][0]
        self.users = [*channels.get(USER_FEATURES, ()), *channels.get(CONTEXT_FEATURES, ())]
        self.label = channels[LABEL][0]

    def batches(self, mapping: str) -> Iterator[HeldOutClicks]:
        """Give the clicked rows of ``train`` or ``test``, as stored, a batch at a time."""
        columns = [self.label, self.item, self.history, *self.users]
        size, ranks = ROWS_PER_BATCH, Ranks()
        feed = open_loader(self.dataset, mapping, columns, size, ranks, data_memory_mb=ONCE_MB)
        try:
            for batch, labels in feed:
                clicked = np.flatnonzero(labels.numpy().reshape(-1) > 0)
                read = {n: batch[n].numpy()[clicked] for n in columns if n != self.label}
                yield HeldOutClicks(
                    read[self.history].reshape(len(clicked), -1).astype(np.int64),
                    read[self.item].reshape(-1).astype(np.int64),
                    {name: read[name].reshape(-1).astype(np.int64) for name in self.users},
                )
        finally:
            feed.stop()

    def sample(self, mapping: str, most: int, seed: int) -> HeldOutClicks:
        """Draw so many clicked rows; all, where there are no more."""
        found = list(self.batches(mapping))
        if not sum(map(len, found)):
            raise MerlinSimError(f"{self.dataset.path}: {mapping} has no row with a click.")
        together = HeldOutClicks(
            np.concatenate([part.histories for part in found]),
            np.concatenate([part.targets for part in found]),
            {n: np.concatenate([part.users[n] for part in found]) for n in self.users},
        )
        chosen = np.random.default_rng(seed).permutation(len(together))[:most]
        return together.take(np.sort(chosen))

    def raw(self, clicks: HeldOutClicks) -> tuple[list[UserHistory], list[Any]]:
        """Return histories as raw keys, and the raw keys of targets."""
        schema = self.dataset.schema
        items = self.item_keys
        of_users = {n: self._keys(schema[n].int_domain.name or n) for n in self.users}
        histories = [
            UserHistory(
                {name: of_users[name][ids[row]] for name, ids in clicks.users.items()},
                [items[item] for item in clicks.histories[row] if item],
            )
            for row in range(len(clicks))
        ]
        return histories, [items[item] for item in clicks.targets]

    @cached_property
    def item_keys(self) -> list[Any]:
        """The items' raw keys by id; None for id 0."""
        return self._keys(self.dataset.schema[self.item].int_domain.name or self.item)

    def _keys(self, domain: str) -> list[Any]:
        """Return a domain's raw keys by id; None for id 0."""
        vocabularies = Vocabularies(self.dataset.path / CATEGORIES)
        if not vocabularies.path(domain).exists():
            raise MerlinSimError(
                f"{self.dataset.path}: expected a vocabulary of {domain!r}, of which raw keys are "
                "read; there is none."
            )
        return [None, *vocabularies.keys(domain).tolist()]


NEWEST = 20
"""How many of a history's items count as those before what was taken."""


class CoOccurrence:
    """How often an item was taken after another, over the root of how often each was there.

    >>> clicks = HeldOutClicks(np.array([[0, 1], [0, 1], [2, 1]]), np.array([3, 3, 4]), {})
    >>> CoOccurrence([clicks], 5).nearest(np.array([1]), 2).tolist()
    [3, 4]
    """

    def __init__(self, parts: Iterable[HeldOutClicks], rows: int) -> None:
        counts = csr_matrix((rows, rows), dtype=np.float32)
        for part in parts:
            before = part.histories[:, -NEWEST:]
            after = np.broadcast_to(part.targets[:, np.newaxis], before.shape)
            real = before > 0
            ones = np.ones(int(real.sum()), np.float32)
            counts = counts + csr_matrix((ones, (before[real], after[real])), (rows, rows))
        befores = np.asarray(counts.sum(axis=1)).reshape(-1)
        afters = np.asarray(counts.sum(axis=0)).reshape(-1)
        counts = counts.multiply(1 / np.sqrt(np.maximum(befores, 1))[:, np.newaxis])
        self._likeness = csr_matrix(counts.multiply(1 / np.sqrt(np.maximum(afters, 1))))

    def nearest(self, history: Ids, most: int) -> Ids:
        """Return the items that were taken most after those of a history, best first."""
        scores = np.asarray(self._likeness[history[-NEWEST:]].sum(axis=0)).reshape(-1)
        order = np.argsort(-scores, kind="stable")[:most]
        found: Ids = order[scores[order] > 0]
        return found


TOP = 20
"""The length of an answer of which NDCG and coverage are reported."""
RECALLS = (20, 100, 500)
POPULAR, CO_OCCURRENCE, INDEX = "popular items", "co-occurrence", "towers, index"
WHOLE, RANKED_POPULAR = "the whole", "ranker on popular"


@dataclass(frozen=True)
class Measured:
    """Measures of one way to answer."""

    name: str
    ndcg: float
    coverage: float
    recalls: dict[int, float] = field(default_factory=dict)
    """Of the first k items, up to as many as it answers with."""


@dataclass(frozen=True)
class QualityReport:
    """Measures of all ways to answer."""

    users: int
    """Clicks that were held out and asked for."""
    items: int
    unknown: int
    """Of the clicks, those on items that the towers do not know: they cannot be found."""
    index_recall: float
    """Share of the exact nearest 500 that the index found."""
    measured: list[Measured]


@dataclass
class Quality:
    """Asks for answers to held-out clicks, none of whose histories has anything of later.

    Every way leaves out the items of the history, unless the rules keep them; rules with filters
    are the whole's alone.
    """

    recommender: Recommender
    dataset: DatasetDirectory
    reporter: Reporter

    def __post_init__(self) -> None:
        self._rows = ClickedRows(self.dataset)
        keys = self._rows.item_keys[1:]
        self._ids = np.append(
            np.int64(0), self.recommender.towers.encoder.item_ids(keys, "item_id")
        )

    def report(
        self, mapping: str, users: int, seed: int, facts: dict[str, Any] | None = None
    ) -> QualityReport:
        """Measure."""
        drawn = self._rows.sample(mapping, users, seed)
        histories, _ = self._rows.raw(drawn)
        clicks = drawn.in_ids(self._ids)
        targets = clicks.targets
        if not targets.any():
            raise MerlinSimError(
                f"{self.dataset.path}: none of the {len(targets):,} clicks is on an item that "
                f"{self.recommender.towers.servable.path} knows."
            )
        nearest, index_recall = self._nearest(histories)
        plain: dict[str, Iterable[Ids]] = {
            POPULAR: [self.recommender.towers.catalogue.popular] * len(clicks),
            CO_OCCURRENCE: self._co_occurrence(clicks),
            INDEX: nearest,
        }
        measured = []
        for name, answers in plain.items():
            answered = enumerate(ids[ids > 0] for ids in answers)
            unseen = [self._unseen(ids, clicks, row)[:RETRIEVED] for row, ids in answered]
            measured.append(self._measure(name, unseen, targets))
        if (scores := self.recommender.scores) is not None:
            measured += self._ranked(scores, histories, clicks, facts or {})
        items = self.recommender.index.items
        return QualityReport(len(targets), items, int((targets == 0).sum()), index_recall, measured)

    def _nearest(self, histories: list[UserHistory]) -> tuple[Ids, float]:
        """Return the nearest items of each user, and how many of the exact ones they are."""
        towers, index = self.recommender.towers, self.recommender.index
        longest = max(len(history.items) for history in histories)
        count = min(RETRIEVED + longest, index.items)
        found, exact = [], []
        with self.reporter.phase("retrieving", len(histories)) as report:
            for begin in range(0, len(histories), 256):
                part = histories[begin : begin + 256]
                queries = towers.users_by(part)
                found.append(index.search(queries, count)[0])
                exact.append(index.exact(queries, min(RETRIEVED, index.items)))
                report(len(part), len(part))
        together, nearest = np.concatenate(found), np.concatenate(exact)
        return together, share_found(together[:, : nearest.shape[1]], nearest)

    def _co_occurrence(self, clicks: HeldOutClicks) -> Iterator[Ids]:
        parts = (part.in_ids(self._ids) for part in self._rows.batches(TRAIN))
        table = CoOccurrence(parts, len(self.recommender.towers.catalogue.keys))
        most = RETRIEVED + clicks.histories.shape[1]
        return (table.nearest(history[history > 0], most) for history in clicks.histories)

    def _unseen(self, ids: Ids, clicks: HeldOutClicks, row: int) -> Ids:
        if not self.recommender.rules.drops_seen:
            return ids
        return ids[~np.isin(ids, clicks.histories[row])]

    def _ranked(
        self,
        ranker: Ranker,
        histories: list[UserHistory],
        clicks: HeldOutClicks,
        facts: dict[str, Any],
    ) -> list[Measured]:
        recommender = self.recommender
        popular = recommender.towers.catalogue.popular
        whole, plain = [], []
        with self.reporter.phase("recommending", len(histories)) as report:
            for row, history in enumerate(histories):
                answer = recommender.recommend(history, TOP, facts)
                whole.append(recommender.towers.encoder.item_ids(answer.items, "item_id"))
                items = self._unseen(popular, clicks, row)[: recommender.retrieved]
                scores = ranker.score(history, items, facts)
                plain.append(items[np.argsort(-scores, kind="stable")[:TOP]])
                report(1, 1)
        return [
            self._measure(name, answers, clicks.targets, (TOP,))
            for name, answers in ((RANKED_POPULAR, plain), (WHOLE, whole))
        ]

    def _measure(
        self, name: str, answers: list[Ids], targets: Ids, recalls: tuple[int, ...] = RECALLS
    ) -> Measured:
        pairs = zip(answers, targets, strict=True)
        hits = [np.flatnonzero((answer == target) & (target > 0)) for answer, target in pairs]
        ranks = np.array([found[0] if len(found) else -1 for found in hits])
        items = self.recommender.index.items
        found = {most: recall(ranks, most) for most in recalls}
        return Measured(name, ndcg(ranks, TOP), coverage(answers, TOP, items), found)


def format_quality(report: QualityReport) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of a table."""
    head = ["", f"NDCG@{TOP}", *(f"recall@{most}" for most in RECALLS), f"coverage@{TOP}"]
    rows = [
        [
            entry.name,
            f"{entry.ndcg:.4f}",
            *(f"{entry.recalls[m]:.4f}" if m in entry.recalls else "" for m in RECALLS),
            f"{entry.coverage:.4f}",
        ]
        for entry in report.measured
    ]
    return head, rows
