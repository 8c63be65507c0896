"""The model ``recommend`` inside Triton: users in, items and scores out. In the Python backend."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...serving.limits import RequestError
from ...serving.servables.servable import Servable
from ...serving.triton.python_models.counters import Counters
from ...serving.triton.python_models.model_settings import (
    read_canary,
    read_histories,
    read_settings,
    read_values,
)
from ...serving.triton.python_models.reads import DESCRIPTIONS as OF_READS
from ...serving.triton.python_models.reads import CountedReads
from ...serving.triton.python_models.responses import FINAL, answer, read_tensors, refuse
from ..candidates.index_directory import open_index
from ..candidates.kept_histories import StoreHistories
from ..candidates.towers import Towers
from ..recommender import Recommender
from ..rules.rules_file import Rules, read_rules
from .endpoint import (
    ANSWER,
    CANDIDATES,
    HAS_VERSIONS,
    INDEX,
    REQUEST,
    RULES,
    TOWERS,
)
from .responder import Responder, Told
from .tally import DESCRIPTIONS, RecommendTally


class TritonPythonModel:
    """Answers the requests that Triton's dynamic batching hands over together."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load what config.pbtxt names."""
        # Users stand side by side; a thread of each that waits for others' would cost more.
        tf.config.threading.set_intra_op_parallelism_threads(1)
        values = read_values(args)
        servable, limits = read_settings(args)
        rankers = {int(args["model_version"]): servable}
        if (found := read_canary(args)) is not None:
            rankers[found[0].number] = found[1]
        towers = Towers(Servable.open(values[TOWERS]))
        index = open_index(Path(values[INDEX]), towers)
        rules = read_rules(Path(values[RULES])) if RULES in values else Rules()
        self.tally = RecommendTally(Counters({**DESCRIPTIONS, **OF_READS}).increment)
        recommenders = {
            number: Recommender(
                towers,
                index,
                ranker,
                rules,
                int(values[CANDIDATES]),
                functools.partial(self.tally.stage, number),
            )
            for number, ranker in rankers.items()
        }
        for recommender in recommenders.values():
            recommender.warm_up()
        store = read_histories(args)
        assert store is not None, "the endpoint asks for one"
        self.responder = Responder(
            StoreHistories(CountedReads(store, self.tally), towers.encoder),
            recommenders,
            int(args["model_version"]),
            None if found is None else found[0],
            limits,
            self.tally,
            HAS_VERSIONS in values,
        )

    def execute(self, requests: Sequence[Any]) -> None:
        """Answer requests, each as soon as it can be."""
        waiting = []
        for request in requests:
            sender = request.get_response_sender()
            texts = read_tensors(request)[REQUEST]
            if texts.size == 1:
                waiting.append((sender, texts.flat[0]))
            else:
                error = RequestError(f"{REQUEST}: expected one, received {texts.size}")
                sender.send(refuse(error), flags=FINAL)
        unanswered = dict(enumerate(sender for sender, _ in waiting))
        try:
            for place, told in self.responder.respond([text for _, text in waiting]):
                unanswered.pop(place).send(_response(told), flags=FINAL)
        except Exception as error:  # whatever TensorFlow has to say goes to whoever waits
            for sender in unanswered.values():
                sender.send(refuse(error), flags=FINAL)

    def finalize(self) -> None:
        """Tell what was counted."""
        self.tally.close()


def _response(told: Told | Exception) -> Any:
    if isinstance(told, Exception):
        return refuse(told)
    text = json.dumps(told, ensure_ascii=False)
    return answer({ANSWER: np.array([[text.encode()]], object)})
