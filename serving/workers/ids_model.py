"""The model ``ids``: the inputs of the SavedModel's signature in, scores out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from ..events.example_event import example_event
from ..events.row_encoder import open_encoder
from ..limits import RequestError
from ..scoring.ids_request import check_request
from ..scoring.scorer import Scorer
from ..scoring.signature_inputs import Scores, plain_batch
from ..servables.servable import SCORE, Servable
from .merging import MergingWorker
from .settings import ModelSettings
from .telling import Increment
from .worker_model import Reply, Request

CALLS, REQUESTS, ROWS = (
    "merlin_sim_ids_model_calls",
    "merlin_sim_ids_requests",
    "merlin_sim_ids_rows",
)


class IdsModel:
    """Checks each request by itself; those that are sound are merged and scored."""

    descriptions = {
        CALLS: "Calls of the model `ids`",
        REQUESTS: "Requests in these calls",
        ROWS: "Rows in these calls",
    }

    def __init__(self, settings: ModelSettings, increment: Increment) -> None:
        """Load the servable."""
        self.limits = settings.limits
        self._servable = Servable.open(settings.servable)
        self.scorer = Scorer(self._servable)
        self._increment = increment
        self._labels = {
            "model": "ids", "version": str(settings.number), "process": str(os.getpid()),
        }  # fmt: skip
        self.worker = MergingWorker(self.scorer, self._observe)

    def probe(self) -> dict[str, npt.NDArray[Any]]:
        """See WorkerModel."""
        encoder = open_encoder(self._servable, self.limits)
        event = encoder.encode(encoder.parse(example_event(encoder)))
        return plain_batch([event], self.scorer.columns)

    def take(self, requests: Sequence[Request], reply: Reply) -> None:
        """Take requests; they are answered when they are scored."""
        for place, request in enumerate(requests):
            try:
                checked = check_request(request.tensors, self.scorer.columns, self.limits)
            except RequestError as error:
                reply(place, error)
                continue
            self.worker.submit(checked, _Answer(reply, place), request.is_probe)

    def close(self) -> None:
        """Answer what was taken."""
        self.worker.close()

    def _observe(self, requests: int, rows: int) -> None:
        for name, count in ((CALLS, 1), (REQUESTS, requests), (ROWS, rows)):
            self._increment(name, self._labels, count)


class _Answer:
    """Sends one request's scores, or what went wrong."""

    def __init__(self, reply: Reply, place: int) -> None:
        self.reply, self.place = reply, place

    def __call__(self, result: Scores | Exception) -> None:
        if isinstance(result, Exception):
            self.reply(self.place, result)
        else:
            self.reply(self.place, {SCORE: result[:, None]})
