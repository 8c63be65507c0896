"""From a user to an answer: retrieve, filter, score, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from .rules.item_facts import ItemFacts
from .rules.ordering import put_in_order
from .rules.rules_file import Rules

Ids = npt.NDArray[np.int64]
POPULAR = "popular items: of the user nothing is known"
NEAREST = "nearest"
MOST_WIDENINGS = 4
"""How often more candidates are asked for where filters leave too few."""


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


@dataclass
class Recommender:
    """The four stages together.

    Args:
        towers: The two towers.
        index: The index of their items.
        ranker: What scores the candidates; None for the cosine of the vectors.
        rules: What may be recommended, and in which order.
        candidates: How many items are retrieved.
    """

    towers: Towers
    index: ItemIndex
    ranker: Servable | None = None
    rules: Rules = field(default_factory=Rules)
    candidates: int = 500

    def __post_init__(self) -> None:
        """Load the ranker, and read the facts that the rules are about."""
        self.facts = ItemFacts(self.rules, self.towers.servable, self.towers.catalogue)
        self._scorer = self._encoder = None
        if self.ranker is not None:
            if self.ranker.takes_rows or self.ranker.columns.intervals is not None:
                raise MerlinSimError(
                    f"{self.ranker.path}: expected a model of users with histories, without times "
                    "between interactions, which are not kept here."
                )
            self._scorer = Scorer(self.ranker)
            self._encoder = EventEncoder(self.ranker)

    def recommend(
        self, history: History | None, top: int, facts: Mapping[str, Any] | None = None
    ) -> Answer:
        """Answer for one user.

        Args:
            history: What is known of the user; None for nothing.
            top: How many items.
            facts: Facts of the user for the rules, and fields that the models read beside keys.
        """
        facts = facts or {}
        if history is None or not history.items:
            return self._popular(top, facts)
        event = self.event(self.towers.encoder, history, facts, [])
        encoded = self.towers.encoder.encode(event)
        item = self.towers.encoder.columns.histories[0].name
        seen = self._seen(history) if self.rules.drops_seen else encoded.histories[item][:0]
        query = self.towers.users([encoded])
        ids, cosines, vectors, looked_at = self._retrieve(query, seen, top, facts)
        scores = cosines if self._scorer is None else self.score(history, ids, facts)
        caps = self.facts.capped(ids)
        places = put_in_order(scores, vectors, top, caps, self.rules.diversity)
        keys = [self.towers.catalogue.item(int(ids[place]))[0] for place in places]
        told: list[float | None] = [float(scores[place]) for place in places]
        return Answer(keys, told, NEAREST, looked_at, len(ids))

    def _seen(self, history: History) -> Ids:
        """Return the ids of the whole history, of which the model may read the newest alone."""
        lookup = self.towers.encoder.items[0]
        return np.array([lookup.look_up(key, HISTORY) for key in history.items], np.int64)

    def _retrieve(
        self, query: Any, seen: Any, top: int, facts: Mapping[str, Any]
    ) -> tuple[Ids, Any, Any, int]:
        """Return what the filters leave of the nearest items; where it is little, of more."""
        wanted = max(self.candidates, top)
        least = max(top, self.candidates // 2)
        for widening in range(MOST_WIDENINGS + 1):
            count = min((wanted + len(seen)) * 4**widening, self.index.items)
            found = self.index.search(query, count, widening)
            ids, cosines, vectors = found[0][0], found[1][0], found[2][0]
            kept = (ids >= 0) & ~np.isin(ids, seen)
            kept[kept] = self.facts.keep(ids[kept], facts)
            if kept.sum() >= least or (ids >= 0).sum() == self.index.items:
                break
        places = np.flatnonzero(kept)[:wanted]
        return ids[places], cosines[places], vectors[places], int((ids >= 0).sum())

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

    def _popular(self, top: int, facts: Mapping[str, Any]) -> Answer:
        popular = self.towers.catalogue.popular
        kept = popular[self.facts.keep(popular, facts)]
        falling = -np.arange(len(kept), dtype=np.float32)
        places = put_in_order(falling, None, top, self.facts.capped(kept))
        keys = [self.towers.catalogue.item(int(kept[place]))[0] for place in places]
        return Answer(keys, [None] * len(keys), POPULAR, len(popular), len(kept))

    @staticmethod
    def event(
        encoder: EventEncoder, history: History, facts: Mapping[str, Any], items: Sequence[Any]
    ) -> Event:
        """Return a user and candidates as a model's encoder takes them.

        Args:
            encoder: Of the model.
            history: What is known of the user.
            facts: Fields that the model reads beside keys.
            items: Raw keys of the candidates.
        """
        users = {column.name: history.user.get(column.name) for column in encoder.columns.users}
        beside = {name: facts[name] for name in encoder.numbers.user_fields if name in facts}
        fields = {**users, **beside, HISTORY: history.items, CANDIDATES: list(items)}
        return encoder.parse(fields)
