"""From a user to an answer: retrieve, filter, score, order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..foundation.exceptions import MerlinSimError
from ..serving.events.event import CANDIDATES, HISTORY, Event
from ..serving.events.event_encoder import EventEncoder
from ..serving.scoring.scorer import Scorer
from ..serving.servables.servable import Servable
from .candidates.histories import History
from .candidates.item_index import ItemIndex
from .candidates.towers import Towers
from .ranker import check_ranker
from .rules.item_facts import ItemFacts
from .rules.ordering import put_in_order
from .rules.rules_file import Rules

Ids = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
POPULAR = "popular items: of the user nothing is known"
NEAREST = "nearest"
MOST_WIDENINGS = 4
"""How often more candidates are asked for where filters leave too few."""
RETRIEVE, FILTER, SCORE, ORDER = STAGES = ("retrieve", "filter", "score", "order")
Observe = Callable[[str, float], None]
"""Told of a question's stage and the seconds that it took."""


class Question(NamedTuple):
    """What a user should see?"""

    history: History | None
    """What is known of the user; None for nothing."""
    top: int
    """How many items."""
    facts: Mapping[str, Any] = MappingProxyType({})
    """Facts of the user for the rules, and fields that the models read beside keys."""


class Found(NamedTuple):
    """What the index has for a question, the nearest first."""

    ids: Ids
    cosines: Vectors
    vectors: Vectors
    """[items, dim]."""


@dataclass(frozen=True)
class Answer:
    """What a user should see."""

    items: list[Any]
    """Raw keys, the first the best."""
    scores: list[float | None]
    """What the ranker says of each; None for popular items, which are ordered by popularity."""
    source: str
    """Where the candidates came from: :data:`NEAREST` or :data:`POPULAR`."""
    retrieved: int
    """How many candidates were looked at."""
    kept: int
    """How many of them the filters left."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        items = [
            {"item": item, "score": score}
            for item, score in zip(self.items, self.scores, strict=True)
        ]
        return {
            "source": self.source,
            "retrieved": self.retrieved,
            "kept": self.kept,
            "items": items,
        }


@dataclass
class Recommender:
    """The four stages together.

    Args:
        towers: The two towers.
        index: The index of their items.
        ranker: What scores the candidates; None for the cosine of the vectors.
        rules: What may be recommended, and in which order.
        candidates: How many items are retrieved.
        observe: Told how long stages take.
    """

    towers: Towers
    index: ItemIndex
    ranker: Servable | None = None
    rules: Rules = field(default_factory=Rules)
    candidates: int = 500
    observe: Observe = lambda stage, seconds: None

    def __post_init__(self) -> None:
        """Load the ranker, and read the facts that the rules are about."""
        self.facts = ItemFacts(self.rules, self.towers.servable, self.towers.catalogue)
        self._scorer = self._encoder = None
        if self.ranker is not None:
            check_ranker(self.ranker)
            self._scorer = Scorer(self.ranker)
            self._encoder = EventEncoder(self.ranker)

    def recommend(
        self, history: History | None, top: int, facts: Mapping[str, Any] | None = None
    ) -> Answer:
        """Answer for one user; see :class:`Question`.

        Raises:
            MerlinSimError: Where the question cannot be answered.
        """
        ((_, answer),) = self.recommend_all([Question(history, top, facts or {})])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def recommend_all(
        self, questions: Sequence[Question]
    ) -> Iterator[tuple[int, Answer | Exception]]:
        """Answer questions that came together: their vectors and neighbours are found in one go.

        Yields:
            A question's place and its answer, or what is wrong with it, as soon as it is there.
        """
        places, encoded = [], []
        begin = time.perf_counter()
        for place, question in enumerate(questions):
            try:
                if question.history is None or not question.history.items:
                    yield place, self._popular(question)
                    continue
                encoder = self.towers.encoder
                event = self.event(encoder, question.history, question.facts, [])
                encoded.append(encoder.encode(event))
                places.append(place)
            except Exception as error:  # whatever it is, it is this question's alone
                yield place, error
        if not places:
            return
        asked = [questions[place] for place in places]
        queries = self.towers.users(encoded)
        seen = [self._seen(question) for question in asked]
        found = self._nearest(queries, asked, seen)
        took = time.perf_counter() - begin
        for which, place in enumerate(places):
            self.observe(RETRIEVE, took)
            try:
                query = queries[which : which + 1]
                yield place, self._answer(asked[which], query, seen[which], found[which])
            except Exception as error:
                yield place, error

    def warm_up(self) -> None:
        """Call both models before anybody waits for them: the first call prepares each.

        One that needs more of a request than keys is prepared by the first that comes.
        """
        history = History({}, [self.towers.catalogue.item(1)[0]])
        encoder = self.towers.encoder
        with suppress(MerlinSimError):
            encoded = encoder.encode(self.event(encoder, history, {}, []))
            count = min(self.candidates, self.index.items)
            ids = self.index.search(self.towers.users([encoded]), count)[0][0]
            if self._scorer is not None:
                self.score(history, ids[ids >= 0], {})

    def _answer(self, question: Question, query: Vectors, seen: Ids, found: Found) -> Answer:
        history, top, facts = question
        assert history is not None
        with self._stage(FILTER):
            found, looked_at = self._filtered(question, query, seen, found)
        with self._stage(SCORE):
            scores = found.cosines
            if self._scorer is not None:
                scores = self.score(history, found.ids, facts)
        with self._stage(ORDER):
            caps = self.facts.capped(found.ids)
            places = put_in_order(scores, found.vectors, top, caps, self.rules.diversity)
            keys = [self.towers.catalogue.item(int(found.ids[place]))[0] for place in places]
        told: list[float | None] = [float(scores[place]) for place in places]
        return Answer(keys, told, NEAREST, looked_at, len(found.ids))

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.observe(name, time.perf_counter() - begin)

    def _seen(self, question: Question) -> Ids:
        """Return the ids of the whole history, of which the model may read the newest alone."""
        if not self.rules.drops_seen or question.history is None:
            return np.zeros(0, np.int64)
        lookup = self.towers.encoder.items[0]
        domain = self.towers.catalogue.domain
        keys = [
            item[domain] if isinstance(item, Mapping) else item for item in question.history.items
        ]
        return np.array([lookup.look_up(key, HISTORY) for key in keys], np.int64)

    def _wanted(self, question: Question) -> int:
        return max(self.candidates, question.top)

    def _nearest(
        self, queries: Vectors, questions: Sequence[Question], seen: Sequence[Ids]
    ) -> list[Found]:
        """Return the nearest items of each: as many as it wants beside those seen."""
        counts = [
            min(self._wanted(question) + len(own), self.index.items)
            for question, own in zip(questions, seen, strict=True)
        ]
        ids, cosines, vectors = self.index.search(queries, max(counts))
        return [
            Found(ids[place, :count], cosines[place, :count], vectors[place, :count])
            for place, count in enumerate(counts)
        ]

    def _filtered(
        self, question: Question, query: Vectors, seen: Ids, found: Found
    ) -> tuple[Found, int]:
        """Return what the filters leave, and of how many; where it is little, of more."""
        wanted = self._wanted(question)
        least = max(question.top, self.candidates // 2)
        for widening in range(MOST_WIDENINGS + 1):
            if widening:
                count = min((wanted + len(seen)) * 4**widening, self.index.items)
                ids, cosines, vectors = self.index.search(query, count, widening)
                found = Found(ids[0], cosines[0], vectors[0])
            kept = (found.ids >= 0) & ~np.isin(found.ids, seen)
            kept[kept] = self.facts.keep(found.ids[kept], question.facts)
            looked_at = int((found.ids >= 0).sum())
            if kept.sum() >= least or looked_at == self.index.items:
                break
        places = np.flatnonzero(kept)[:wanted]
        left = Found(found.ids[places], found.cosines[places], found.vectors[places])
        return left, looked_at

    def score(self, history: History, ids: Ids, facts: Mapping[str, Any]) -> Any:
        """Return what the ranker says of items for one user: [items].

        Args:
            history: What is known of the user.
            ids: Of the items, as the towers have them.
            facts: Fields that the ranker reads beside keys.
        """
        assert self._scorer is not None and self._encoder is not None
        items = [self.towers.catalogue.item(int(item))[0] for item in ids]
        encoded = self._encoder.encode(self.event(self._encoder, history, facts, items))
        return self._scorer.score_events([encoded])[0]

    def _popular(self, question: Question) -> Answer:
        popular = self.towers.catalogue.popular
        with self._stage(FILTER):
            kept = popular[self.facts.keep(popular, question.facts)]
        falling = -np.arange(len(kept), dtype=np.float32)
        with self._stage(ORDER):
            places = put_in_order(falling, None, question.top, self.facts.capped(kept))
            keys = [self.towers.catalogue.item(int(kept[place]))[0] for place in places]
        return Answer(keys, [None] * len(keys), POPULAR, len(popular), len(kept))

    @staticmethod
    def event(
        encoder: EventEncoder, history: History, facts: Mapping[str, Any], items: Sequence[Any]
    ) -> Event:
        """Return a user and candidates as a model's encoder takes them.

        Items of a history that the model does not know are left out when it is encoded, so it gets
        twice as many as it reads.

        Args:
            encoder: Of the model.
            history: What is known of the user.
            facts: Fields that the model reads beside keys, and keys of the user that the history
                does not have.
            items: Raw keys of the candidates.
        """
        users = {
            column.name: history.user.get(column.name, facts.get(column.name))
            for column in encoder.columns.users
        }
        beside = {name: facts[name] for name in encoder.numbers.user_fields if name in facts}
        newest = history.items[-2 * encoder.columns.longest :]
        fields = {**users, **beside, HISTORY: newest, CANDIDATES: list(items)}
        return encoder.parse(fields)
