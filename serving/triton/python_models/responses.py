"""Answers as Triton's Python backend takes them. Imported inside Triton only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import triton_python_backend_utils as backend

from ...limits import TOO_LARGE, RequestError, TooLargeError

FINAL = backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def read_tensors(request: Any) -> dict[str, Any]:
    """A request's inputs by name."""
    return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}


def answer(tensors: Mapping[str, Any]) -> Any:
    """A response with these outputs."""
    outputs = [backend.Tensor(name, np.ascontiguousarray(value)) for name, value in tensors.items()]
    return backend.InferenceResponse(outputs)


def refuse(error: Exception) -> Any:
    """A response that says what is wrong: with the request, or else with the server."""
    is_ours = isinstance(error, RequestError)
    code = backend.TritonError.INVALID_ARG if is_ours else backend.TritonError.INTERNAL
    message = str(error) if is_ours else f"{type(error).__name__}: {error}"
    if isinstance(error, TooLargeError):
        message = TOO_LARGE + message
    return backend.InferenceResponse([], error=backend.TritonError(message, code))
