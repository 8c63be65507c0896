"""The model ``recommend``: users in, items and scores out."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...histories.open_store import open_store
from ...serving.limits import RequestError
from ...serving.servables.servable import Servable
from ...serving.workers.reads import DESCRIPTIONS as OF_READS
from ...serving.workers.reads import CountedReads
from ...serving.workers.settings import ModelSettings
from ...serving.workers.telling import Increment
from ...serving.workers.worker_model import Reply, Request
from ..candidates.index_directory import open_index
from ..candidates.kept_histories import StoreHistories
from ..candidates.towers import Towers
from ..recommender import Recommender
from ..rules.rules_file import Rules, read_rules
from .endpoint import ANSWER, CANDIDATES, INDEX, NAME, REQUEST, RULES, TOWERS
from .request import USER
from .responder import Responder, Told
from .tally import DESCRIPTIONS, RecommendTally

PROBED = "merlin-sim-probe"
"""The key of a user whom nobody has, by whom a server asks itself."""


class RecommendModel:
    """Answers the requests that Triton's dynamic batching hands over together."""

    descriptions = {**DESCRIPTIONS, **OF_READS}

    def __init__(self, settings: ModelSettings, increment: Increment) -> None:
        """Load what the settings name."""
        # Users stand side by side; a thread of each that waits for others' would cost more.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        own, canary = settings.further[NAME], settings.canary
        rankers = {settings.number: Servable.open(settings.servable)}
        if canary is not None:
            assert settings.canary_servable is not None
            rankers[canary.number] = Servable.open(settings.canary_servable)
        towers = Towers(Servable.open(own[TOWERS]))
        index = open_index(Path(own[INDEX]), towers)
        rules = read_rules(Path(own[RULES])) if own[RULES] is not None else Rules()
        self.tally = RecommendTally(increment)
        recommenders = {
            number: Recommender(
                towers, index, ranker, rules, own[CANDIDATES],
                functools.partial(self.tally.stage, number),
            )
            for number, ranker in rankers.items()
        }  # fmt: skip
        for recommender in recommenders.values():
            recommender.warm_up()
        assert settings.histories is not None, "the endpoint asks for one"
        self._store = open_store(settings.histories, later=True)
        self._known = towers.encoder.users[0].example(0) if towers.encoder.users else PROBED
        self.responder = Responder(
            StoreHistories(CountedReads(self._store, self.tally), towers.encoder),
            recommenders,
            settings.number,
            canary,
            own[CANDIDATES],
            self.tally,
            settings.version is not None,
        )

    def probe(self) -> dict[str, npt.NDArray[Any]]:
        """See WorkerModel: a user whom the towers know.

        Rules may ask for a fact, which is then missing: the answer says so, and is one.
        """
        text = json.dumps({USER: self._known, "top": 1}, ensure_ascii=False).encode()
        return {REQUEST: np.array([[text]], object)}

    def take(self, requests: Sequence[Request], reply: Reply) -> None:
        """Answer requests, each as soon as it can be."""
        texts, places, counted = [], [], []
        for place, request in enumerate(requests):
            given = request.tensors[REQUEST]
            if given.size != 1:
                reply(place, RequestError(f"{REQUEST}: expected one, received {given.size}"))
                continue
            places.append(place)
            texts.append(given.flat[0])
            counted.append(not request.is_probe)
        unanswered = set(range(len(texts)))
        try:
            for which, told in self.responder.respond(texts, counted):
                unanswered.remove(which)
                reply(places[which], _response(told))
        except Exception as error:  # whatever TensorFlow has to say goes to whoever waits
            for which in unanswered:
                reply(places[which], error)

    def close(self) -> None:
        """Tell what was counted."""
        self.tally.close()
        self._store.close()


def _response(told: Told | Exception) -> dict[str, npt.NDArray[Any]] | Exception:
    if isinstance(told, Exception):
        return told
    text = json.dumps(told, ensure_ascii=False)
    return {ANSWER: np.array([[text.encode()]], object)}
