"""The model ``workflow`` inside the stock Triton: a raw event in, ids out, no TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...foundation.requests import RequestError
from ..encoder import open_encoder
from ..limits import Limits
from ..servable import Servable
from ..signatures import one_user_batch
from ..texts import encode_events
from ..workers.protocol import EVENT
from ..workers.worker import refusal
from .relay import answer, read_tensors, refuse
from .repository import MAX_CANDIDATES, MAX_HISTORY, SERVABLE


class TritonPythonModel:
    """Turns an event into the inputs of the signature for one user and many candidates."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the vocabularies."""
        parameters = json.loads(args["model_config"])["parameters"]
        values = {name: entry["string_value"] for name, entry in parameters.items()}
        here = Path(args["model_repository"]) / args["model_version"]
        limits = Limits(int(values[MAX_CANDIDATES]), int(values[MAX_HISTORY]))
        servable = Servable.open(here / values[SERVABLE], with_model=False)
        self.encoder = open_encoder(servable, limits)

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer requests of one event each."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        try:
            events = encode_events(self.encoder, read_tensors(request)[EVENT])
            if len(events) != 1:
                raise RequestError(f"{EVENT}: expected one event, received {len(events)}")
            return answer(one_user_batch(events[0], self.encoder.columns))
        except Exception as error:  # of this request alone
            return refuse(*refusal(error))
