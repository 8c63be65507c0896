"""The model ``workflow`` inside the stock Triton: a raw event in, ids out, no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...limits import RequestError
from ...scoring.signature_inputs import one_user_batch
from .event_texts import EVENT, encode_events
from .model_settings import read_encoder
from .responses import answer, read_tensors, refuse


class TritonPythonModel:
    """Turns an event into the inputs of the signature for one user and many candidates."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the vocabularies."""
        self.encoder = read_encoder(args)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests of one event each."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            events = encode_events(self.encoder, read_tensors(request)[EVENT])
            if len(events) != 1:
                raise RequestError(f"{EVENT}: expected one event, received {len(events)}")
            return answer(one_user_batch(events[0], self.encoder.columns))
        except RequestError as error:
            return refuse(error)
