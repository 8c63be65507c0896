"""Answers as Triton's Python backend takes them. Imported inside Triton only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as backend

from ...workers.protocol import INTERNAL, INVALID, UNAVAILABLE

FINAL = backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_CODES = {INVALID: "INVALID_ARG", UNAVAILABLE: "UNAVAILABLE", INTERNAL: "INTERNAL"}


def read_tensors(request: Any) -> dict[str, Any]:
    """A request's inputs by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def answer(tensors: Mapping[str, Any]) -> Any:
    """A response with these outputs."""
    outputs = [backend.Tensor(name, np.ascontiguousarray(value)) for name, value in tensors.items()]
    return backend.InferenceResponse(outputs)


def refuse(code: str, message: str) -> Any:
    """A response that says what is wrong, as :func:`~merlin_sim.serving.workers` calls it."""
    kind = getattr(backend.TritonError, _CODES[code])  # the backend has it once it runs
    return backend.InferenceResponse([], error=backend.TritonError(message, kind))
