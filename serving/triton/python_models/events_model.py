"""The model ``events`` inside Triton: raw events in, scores out. Runs in the Python backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...events.event_encoder import EncodedEvent
from ...events.row_encoder import open_encoder
from ...limits import RequestError
from ...scoring.scorer import Scorer
from ...scoring.signature_inputs import Scores
from .event_texts import (
    EVENT,
    SCORES,
    UNSEEN_CANDIDATES,
    UNSEEN_USER,
    encode_events,
)
from .model_settings import read_settings
from .responses import answer, read_tensors, refuse

NO_CANDIDATE = -1.0
"""Fills the rows of events with fewer candidates than others of their request."""


class TritonPythonModel:
    """Scores the requests that Triton's dynamic batching hands over together."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the servable that config.pbtxt names."""
        servable, limits = read_settings(args)
        self.encoder = open_encoder(servable, limits)
        self.scorer = Scorer(servable)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests, each of one event or more; a bad event refuses its request only."""
        responses: list[Any] = []
        encoded: list[list[EncodedEvent]] = []
        for request in requests:
            try:
                encoded.append(encode_events(self.encoder, read_tensors(request)[EVENT]))
                responses.append(None)
            except RequestError as error:
                encoded.append([])
                responses.append(refuse(error))
        try:
            scores = iter(self.scorer.score_events([e for events in encoded for e in events]))
        except Exception as error:  # whatever TensorFlow has to say goes to whoever asked
            return [response or refuse(error) for response in responses]
        return [
            response or _answer(request, events, [next(scores) for _ in events])
            for response, request, events in zip(responses, requests, encoded, strict=True)
        ]


def _answer(request: Any, events: Sequence[EncodedEvent], scores: Sequence[Scores]) -> Any:
    """Those outputs that a request asks for."""
    outputs: dict[str, Callable[[], npt.NDArray[Any]]] = {
        SCORES: lambda: stack(scores, NO_CANDIDATE),
        UNSEEN_USER: lambda: np.array([[event.unseen_user] for event in events], bool),
        UNSEEN_CANDIDATES: lambda: stack([event.unseen_candidates for event in events], False),
    }
    wanted = request.requested_output_names()
    return answer({name: make() for name, make in outputs.items() if name in wanted})


def stack(lists: Sequence[npt.NDArray[Any]], filler: float | bool) -> npt.NDArray[Any]:
    """One list of each event, as rows of one length: [events, candidates]."""
    longest = max((len(row) for row in lists), default=0)
    rows = np.full((len(lists), longest), filler, lists[0].dtype if lists else np.float32)
    for place, row in enumerate(lists):
        rows[place, : len(row)] = row
    return rows
