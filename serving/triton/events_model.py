"""The model ``events`` inside Triton: raw events in, scores out. Runs in the Python backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batches import Scores
from ..event_encoder import EncodedEvent, EventEncoder
from ..limits import RequestError
from ..scorer import Scorer
from .event_texts import EVENT, encode_events
from .model_settings import read_settings
from .responses import answer, read_tensors, refuse

SCORES = "scores"
NO_CANDIDATE = -1.0
"""Fills the rows of events with fewer candidates than others of their request."""


class TritonPythonModel:
    """Scores the requests that Triton's dynamic batching hands over together."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the servable that config.pbtxt names."""
        servable, limits = read_settings(args)
        self.encoder = EventEncoder(servable, limits)
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
            response or answer({SCORES: stack([next(scores) for _ in events])})
            for response, events in zip(responses, encoded, strict=True)
        ]


def stack(scores: Sequence[Scores]) -> Scores:
    """Scores of several events as rows of one length: [events, candidates]."""
    longest = max((len(row) for row in scores), default=0)
    rows = np.full((len(scores), longest), NO_CANDIDATE, np.float32)
    for place, row in enumerate(scores):
        rows[place, : len(row)] = row
    return rows
