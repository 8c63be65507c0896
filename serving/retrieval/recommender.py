"""From a user to an answer: retrieve, filter, score, order."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ...foundation.cores import count_cores
from ...foundation.exceptions import MerlinSimError
from ..encoder import EventEncoder
from ..event import HISTORY
from ..scorer import Scorer
from ..servable import Servable
from .index import Ids, ItemIndex, Vectors
from .items import Catalogue, ItemFacts
from .rules import Rules, put_in_order
from .towers import Towers
from .users import UserHistory, user_event

NOT_LOOKED_UP = -1
ITEMS_AT_ONCE = 100_000
"""Items that are looked up at once, which bounds memory."""


class Ranker:
    """Scores items that a retrieval found; remembers what the ranker calls each of them."""

    def __init__(self, ranker: Servable, catalogue: Catalogue) -> None:
        ranker.check_ranks()
        self._encoder, self._scorer = EventEncoder(ranker), Scorer(ranker)
        self._catalogue = catalogue
        self._ids = np.full(len(catalogue.keys), NOT_LOOKED_UP, np.int64)

    def look_up_all(self) -> None:
        """Look all items up before anybody waits for them."""
        every = np.arange(len(self._ids))
        for begin in range(1, len(every), ITEMS_AT_ONCE):
            self._own_ids(every[begin : begin + ITEMS_AT_ONCE])

    def score(self, history: UserHistory, ids: Ids, facts: Mapping[str, Any]) -> Any:
        """Return what the ranker says of items: [items]."""
        event = user_event(self._encoder, history, facts)
        encoded = self._encoder.encode_for_items(event, self._own_ids(ids))
        return self._scorer.score_events([encoded])[0]

    def _own_ids(self, ids: Ids) -> Ids:
        new = ids[self._ids[ids] == NOT_LOOKED_UP]
        if len(new):
            self._ids[new] = self._encoder.item_ids(self._catalogue.keys[new])
        return self._ids[ids]


POPULAR = "popular items: of the user nothing is known"
NEAREST = "nearest"
MOST_WIDENINGS = 4
"""How often more items are asked for where filters leave too few."""
RETRIEVE, FILTER, SCORE, ORDER = STAGES = ("retrieve", "filter", "score", "order")
Observe = Callable[[str, float], None]
"""Called with a stage and the seconds that it took."""


class Question(NamedTuple):
    """A request for the top items of a user."""

    history: UserHistory | None
    top: int
    facts: Mapping[str, Any] = MappingProxyType({})
    """Facts of the user for the rules, and fields that the models read besides keys."""


class Found(NamedTuple):
    """Items that the index has for a question, the nearest first."""

    ids: Ids
    cosines: Vectors


@dataclass(frozen=True)
class Answer:
    """Recommended items of a user, with scores."""

    items: list[Any]
    """Raw keys, the first the best."""
    scores: list[float | None]
    """What the ranker says of each; None for popular items, which are ordered by popularity."""
    source: str
    """Where the items came from: :data:`NEAREST` or :data:`POPULAR`."""
    retrieved: int
    kept: int
    """How many of them the filters left."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        pairs = zip(self.items, self.scores, strict=True)
        return {
            "source": self.source,
            "retrieved": self.retrieved,
            "kept": self.kept,
            "items": [{"item": item, "score": score} for item, score in pairs],
        }


@dataclass
class Recommender:
    """The four stages together.

    Args:
        towers: The two towers.
        index: The index of their items.
        ranker: What scores the retrieved items; None for the cosine of the vectors.
        rules: What may be recommended, and in which order.
        retrieved: How many items are retrieved.
        observe: Called with how long stages take, by several threads.
    """

    towers: Towers
    index: ItemIndex
    ranker: Servable | None = None
    rules: Rules = field(default_factory=Rules)
    retrieved: int = 500
    observe: Observe = lambda stage, seconds: None

    def __post_init__(self) -> None:
        """Load the ranker, and read the facts that the rules are about."""
        self.facts = ItemFacts(self.rules, self.towers.servable, self.towers.catalogue)
        self.scores = None
        if self.ranker is not None:
            self.scores = Ranker(self.ranker, self.towers.catalogue)
        self._threads = count_cores()
        self._pool = ThreadPoolExecutor(self._threads, "recommend")

    def recommend(
        self, history: UserHistory | None, top: int, facts: Mapping[str, Any] | None = None
    ) -> Answer:
        """Answer for one user; see :class:`Question`."""
        ((_, answer),) = self.recommend_all([Question(history, top, facts or {})])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def recommend_all(
        self, questions: Sequence[Question]
    ) -> Iterator[tuple[int, Answer | Exception]]:
        """Answer questions that came together, on all cores; give each answer once it is there."""
        numbered = list(enumerate(questions))
        answered: SimpleQueue[tuple[int, Answer | Exception]] = SimpleQueue()
        for first in range(min(self._threads, len(numbered))):
            self._pool.submit(self._answer_all, numbered[first :: self._threads], answered.put)
        for _ in questions:
            yield answered.get()

    def _answer_all(
        self,
        questions: Sequence[tuple[int, Question]],
        put: Callable[[tuple[int, Answer | Exception]], None],
    ) -> None:
        """Retrieve items for numbered questions in one go; answer one after the other."""
        begin = time.perf_counter()
        encoder = self.towers.encoder
        asked, encoded, seen = [], [], []
        for index, question in questions:
            try:
                if question.history is None or not question.history.items:
                    put((index, self._popular(question)))
                    continue
                own = self._seen(question.history)
                event = user_event(encoder, question.history, question.facts)
                encoded.append(encoder.encode(event))
                seen.append(own)
                asked.append((index, question))
            except Exception as error:  # whatever it is, it is this question's alone
                put((index, error))
        if not asked:
            return
        try:
            queries = self.towers.users(encoded)
            found = self._nearest(queries, [question for _, question in asked], seen)
            took = time.perf_counter() - begin
            for _ in asked:
                self.observe(RETRIEVE, took)
        except Exception as error:  # an error of TensorFlow goes to all that asked
            for index, _ in asked:
                put((index, error))
            return
        for i, (index, question) in enumerate(asked):
            try:
                put((index, self._choose(question, queries[i : i + 1], seen[i], found[i])))
            except Exception as error:  # of this question alone
                put((index, error))

    def warm_up(self) -> None:
        """Call both models before anybody waits for them, and look all items up for the ranker.

        The first call prepares a model. One that needs more of a request than keys is prepared by
        the first that comes.
        """
        history = UserHistory({}, [self.towers.catalogue.keys[1]])
        encoder = self.towers.encoder
        try:
            if self.scores is not None:
                self.scores.look_up_all()
            encoded = encoder.encode(user_event(encoder, history, {}))
            count = min(self.retrieved, self.index.items)
            ids = self.index.search(self.towers.users([encoded]), count)[0][0]
            if self.scores is not None:
                self.scores.score(history, ids[ids >= 0], {})
        except MerlinSimError as error:
            said = f"merlin-sim: the first request will prepare the models: {error}"
            print(said, file=sys.stderr, flush=True)

    def _choose(self, question: Question, query: Vectors, seen: Ids, found: Found) -> Answer:
        """Answer by what was found for a user's vector, [1, dim]."""
        history, top, facts = question
        assert history is not None
        with self._stage(FILTER):
            found, looked_at = self._filtered(question, query, seen, found)
        with self._stage(SCORE):
            scores = found.cosines
            if self.scores is not None:
                scores = self.scores.score(history, found.ids, facts)
        with self._stage(ORDER):
            caps = self.facts.capped(found.ids)
            vectors = self.index.vectors(found.ids) if self.rules.diversity else None
            indices = put_in_order(scores, vectors, top, caps, self.rules.diversity)
            keys = self.towers.catalogue.keys[found.ids[indices]].tolist()
        answer_scores: list[float | None] = [float(scores[index]) for index in indices]
        return Answer(keys, answer_scores, NEAREST, looked_at, len(found.ids))

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.observe(name, time.perf_counter() - begin)

    def _seen(self, history: UserHistory) -> Ids:
        """Return the ids of the whole history, of which the model may read the newest alone."""
        if not self.rules.drops_seen:
            return np.zeros(0, np.int64)
        lookup = self.towers.encoder.items[0]
        domain = self.towers.catalogue.domain
        keys = (item[domain] if isinstance(item, Mapping) else item for item in history.items)
        return np.array([lookup.look_up(key, HISTORY) for key in keys], np.int64)

    def _nearest(
        self,
        queries: Vectors,
        questions: Sequence[Question],
        seen: Sequence[Ids],
        widening: int = 0,
    ) -> list[Found]:
        """Return the nearest items of each: as many as it wants besides those seen, or more.

        Those that want as many are looked for in one go. All in one go would not do: the more are
        wanted, the more the index compares again, and an answer may not depend on other requests.
        """
        counts = np.array([
            min((max(self.retrieved, question.top) + len(own)) * 4**widening, self.index.items)
            for question, own in zip(questions, seen, strict=True)
        ])  # fmt: skip
        found: dict[int, Found] = {}
        for count in np.unique(counts).tolist():
            indices = np.flatnonzero(counts == count)
            ids, cosines = self.index.search(queries[indices], count, widening)
            found |= dict(zip(indices.tolist(), map(Found, ids, cosines), strict=True))
        return [found[index] for index in range(len(counts))]

    def _filtered(
        self, question: Question, query: Vectors, seen: Ids, found: Found
    ) -> tuple[Found, int]:
        """Return what the filters leave, and of how many; where it is little, of more."""
        least = max(question.top, self.retrieved // 2)
        for widening in range(MOST_WIDENINGS + 1):
            if widening:
                (found,) = self._nearest(query, [question], [seen], widening)
            kept = (found.ids >= 0) & ~np.isin(found.ids, seen)
            kept[kept] = self.facts.keep(found.ids[kept], question.facts)
            looked_at = int((found.ids >= 0).sum())
            if kept.sum() >= least or looked_at == self.index.items:
                break
        indices = np.flatnonzero(kept)[: max(self.retrieved, question.top)]
        return Found(found.ids[indices], found.cosines[indices]), looked_at

    def _popular(self, question: Question) -> Answer:
        popular = self.towers.catalogue.popular
        with self._stage(FILTER):
            kept = popular[self.facts.keep(popular, question.facts)]
        falling = -np.arange(len(kept), dtype=np.float32)
        with self._stage(ORDER):
            indices = put_in_order(falling, None, question.top, self.facts.capped(kept))
            keys = self.towers.catalogue.keys[kept[indices]].tolist()
        return Answer(keys, [None] * len(keys), POPULAR, len(popular), len(kept))
