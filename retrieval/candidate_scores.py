"""What a ranker says of retrieved items, for one user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..serving.events.event_encoder import EventEncoder
from ..serving.scoring.scorer import Scorer
from ..serving.servables.servable import Servable
from .candidates.catalogue import Catalogue
from .candidates.histories import History
from .ranker import check_ranker
from .user_event import user_event

Ids = npt.NDArray[np.int64]

NOT_LOOKED_UP = -1
ITEMS_AT_ONCE = 100_000
"""Items that are looked up at once, which bounds memory."""


class CandidateScores:
    """Scores items that a retrieval found; remembers what the ranker calls each of them.

    Args:
        ranker: An opened servable.
        catalogue: The items, as the retrieval numbers them.

    Raises:
        MerlinSimError: Where it cannot score what is retrieved.
    """

    def __init__(self, ranker: Servable, catalogue: Catalogue) -> None:
        """Load the ranker."""
        check_ranker(ranker)
        self._encoder, self._scorer = EventEncoder(ranker), Scorer(ranker)
        self._catalogue = catalogue
        self._ids = np.full(len(catalogue.keys), NOT_LOOKED_UP, np.int64)

    def look_up_all(self) -> None:
        """Look all items up before anybody waits for them."""
        every = np.arange(len(self._ids))
        for begin in range(1, len(every), ITEMS_AT_ONCE):
            self._own_ids(every[begin : begin + ITEMS_AT_ONCE])

    def score(self, history: History, ids: Ids, facts: Mapping[str, Any]) -> Any:
        """Return what the ranker says of items: [items].

        Args:
            history: What is known of the user.
            ids: Of the items, as the catalogue has them.
            facts: Fields that the ranker reads beside keys.
        """
        event = user_event(self._encoder, history, facts)
        encoded = self._encoder.encode_beside(event, self._own_ids(ids))
        return self._scorer.score_events([encoded])[0]

    def _own_ids(self, ids: Ids) -> Ids:
        """Return what the ranker calls items."""
        new = ids[self._ids[ids] == NOT_LOOKED_UP]
        if len(new):
            keys = [self._catalogue.item(item)[0] for item in new.tolist()]
            self._ids[new] = self._encoder.item_ids(keys)
        return self._ids[ids]
