"""Retrieval and the whole, beside what is plainer, on clicks that were held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ...schemas.dataset import DatasetDirectory
from ..candidate_scores import CandidateScores
from ..candidates.histories import History
from ..candidates.item_index import share_found
from ..recommender import Recommender
from ..user_event import user_event
from .co_occurrence import CoOccurrence
from .held_out import ClickedRows, Clicks
from .measures import coverage, ndcg, rank_of, recall

Ids = npt.NDArray[np.int64]

TOP = 20
"""Places of an answer of which NDCG and coverage are told."""
RECALLS = (20, 100, 500)
RETRIEVED = 500
POPULAR, CO_OCCURRENCE, INDEX = "popular items", "co-occurrence", "towers, index"
WHOLE, RANKED_POPULAR = "the whole", "ranker on popular"


@dataclass(frozen=True)
class Measured:
    """What is known of one way to answer."""

    name: str
    ndcg: float
    coverage: float
    recalls: dict[int, float] = field(default_factory=dict)
    """Up to as many places as it answers with."""


@dataclass(frozen=True)
class QualityReport:
    """What was measured."""

    users: int
    """Clicks that were held out and asked for."""
    items: int
    unknown: int
    """Of the clicks, those on items that the towers do not know: nobody finds them."""
    index_recall: float
    """Share of the exact nearest 500 that the index found."""
    measured: list[Measured]

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)


@dataclass
class Quality:
    """Asks for answers to held-out clicks, none of whose histories has anything of later.

    Every way leaves out the items of the history, unless the rules keep them; rules with filters
    are the whole's alone.

    Args:
        recommender: The four stages.
        dataset: Of the ids of whose vocabularies raw keys are known.
        narrator: Shows progress.
    """

    recommender: Recommender
    dataset: DatasetDirectory
    narrator: Narrator

    def __post_init__(self) -> None:
        """Learn how the towers number the dataset's items."""
        self._rows = ClickedRows(self.dataset)
        lookup = self.recommender.towers.encoder.items[0]
        keys = self._rows.item_keys
        known = [0, *(lookup.look_up(_plain(key), "item_id") for key in keys[1:])]
        self._ids = np.array(known, np.int64)

    def report(
        self, mapping: str, users: int, seed: int, facts: dict[str, Any] | None = None
    ) -> QualityReport:
        """Measure.

        Args:
            mapping: Whose clicks are held out.
            users: How many clicks, drawn at random.
            seed: Decides which.
            facts: As for an answer.
        """
        drawn = self._rows.sample(mapping, users, seed)
        histories = [
            History({n: _plain(k) for n, k in h.user.items()}, [_plain(k) for k in h.items])
            for h in self._rows.raw(drawn)[0]
        ]
        clicks = drawn.in_ids(self._ids)
        targets = clicks.targets
        if not targets.any():
            raise MerlinSimError(
                f"{self.dataset.path}: none of the {len(targets):,} clicks is on an item that "
                f"{self.recommender.towers.servable.path} knows."
            )
        nearest, index_recall = self._nearest(histories)
        plain = {
            POPULAR: lambda row: self.recommender.towers.catalogue.popular,
            CO_OCCURRENCE: self._co_occurrence(clicks),
            INDEX: lambda row: nearest[row],
        }
        measured = [
            self._measure(name, self._answers(answer, clicks), targets)
            for name, answer in plain.items()
        ]
        if (scores := self.recommender.scores) is not None:
            measured += self._ranked(scores, histories, clicks, facts or {})
        items = self.recommender.index.items
        return QualityReport(len(targets), items, int((targets == 0).sum()), index_recall, measured)

    def _nearest(self, histories: list[History]) -> tuple[Ids, float]:
        """Return the nearest items of each user, and how many of the exact ones they are."""
        towers, index = self.recommender.towers, self.recommender.index
        longest = max(len(history.items) for history in histories)
        count = min(RETRIEVED + longest, index.items)
        found, exact = [], []
        with self.narrator.phase("retrieving", len(histories)) as report:
            for begin in range(0, len(histories), 256):
                part = histories[begin : begin + 256]
                encoded = [
                    towers.encoder.encode(user_event(towers.encoder, history, {}))
                    for history in part
                ]
                queries = towers.users(encoded)
                found.append(index.search(queries, count)[0])
                exact.append(index.exact(queries, min(RETRIEVED, index.items)))
                report(len(part), len(part))
        together, wanted = np.concatenate(found), np.concatenate(exact)
        return together, share_found(together[:, : wanted.shape[1]], wanted)

    def _co_occurrence(self, clicks: Clicks) -> Callable[[int], Ids]:
        parts = (part.in_ids(self._ids) for part in self._rows.batches("train"))
        rows = len(self.recommender.towers.catalogue.keys)
        table = CoOccurrence(parts, rows)
        longest = clicks.histories.shape[1]

        def nearest(row: int) -> Ids:
            history = clicks.histories[row]
            return table.nearest(history[history > 0], RETRIEVED + longest)

        return nearest

    def _answers(self, answer: Callable[[int], Ids], clicks: Clicks) -> list[Ids]:
        found = []
        for row in range(len(clicks)):
            ids = answer(row)
            found.append(self._unseen(ids[ids > 0], clicks, row)[:RETRIEVED])
        return found

    def _unseen(self, ids: Ids, clicks: Clicks, row: int) -> Ids:
        if not self.recommender.rules.drops_seen:
            return ids
        return ids[~np.isin(ids, clicks.histories[row])]

    def _ranked(
        self,
        ranker: CandidateScores,
        histories: list[History],
        clicks: Clicks,
        facts: dict[str, Any],
    ) -> list[Measured]:
        recommender = self.recommender
        lookup = recommender.towers.encoder.items[0]
        popular = recommender.towers.catalogue.popular
        whole, plain = [], []
        with self.narrator.phase("recommending", len(histories)) as report:
            for row, history in enumerate(histories):
                answer = recommender.recommend(history, TOP, facts)
                ids = [lookup.look_up(key, "item_id") for key in answer.items]
                whole.append(np.array(ids, np.int64))
                candidates = self._unseen(popular, clicks, row)[: recommender.candidates]
                scores = ranker.score(history, candidates, facts)
                plain.append(candidates[np.argsort(-scores, kind="stable")[:TOP]])
                report(1, 1)
        return [
            self._measure(name, answers, clicks.targets, (TOP,))
            for name, answers in ((RANKED_POPULAR, plain), (WHOLE, whole))
        ]

    def _measure(
        self, name: str, answers: list[Ids], targets: Ids, recalls: tuple[int, ...] = RECALLS
    ) -> Measured:
        ranks = np.array(
            [
                rank_of(answer, int(target)) if target else -1
                for answer, target in zip(answers, targets, strict=True)
            ]
        )
        items = self.recommender.index.items
        found = {most: recall(ranks, most) for most in recalls}
        return Measured(name, ndcg(ranks, TOP), coverage(answers, TOP, items), found)


def _plain(key: Any) -> Any:
    return key.item() if isinstance(key, np.generic) else key


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
