"""What a worker holds: a model that takes requests, and says what goes wrong with one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from ..limits import NOT_NOW, TOO_LARGE, RequestError, TooLargeError, UnavailableError
from .protocol import FAULT, INTERNAL, INVALID, UNAVAILABLE
from .settings import ModelSettings
from .telling import Increment

Outputs = Mapping[str, npt.NDArray[Any]]
Reply = Callable[[int, Outputs | Exception], None]
"""Answers a request by its place, once."""


@dataclass(frozen=True)
class Request:
    """One request of Triton's."""

    tensors: Mapping[str, npt.NDArray[Any]]
    """Its inputs."""
    outputs: frozenset[str]
    """Those that it asks for."""
    is_probe: bool = False
    """Whether the server asks itself, which is not counted."""


class WorkerModel(Protocol):
    """A model in a worker; made of settings and of what takes its counts."""

    descriptions: Mapping[str, str]
    """Of each metric that it counts."""

    def __init__(self, settings: ModelSettings, increment: Increment) -> None:
        """Load it."""

    def probe(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the inputs of a request that it answers, if anything is as it should be."""

    def take(self, requests: Sequence[Request], reply: Reply) -> None:
        """Answer requests that came together, now or later; what fails, fails alone."""

    def close(self) -> None:
        """Answer what was taken, and close what was opened."""


def refusal(error: Exception) -> tuple[str, str]:
    """Say what is wrong: with the request, or else with the server.

    What is not the request's fault is written to the log; who asked is not shown a path or an
    address.
    """
    if isinstance(error, RequestError):
        begin = TOO_LARGE if isinstance(error, TooLargeError) else ""
        kind, message = INVALID, f"{begin}{error}"
    elif isinstance(error, UnavailableError):
        kind, message = UNAVAILABLE, f"{NOT_NOW}{error}"
    else:
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()
        kind, message = INTERNAL, FAULT
    return kind, message.encode("utf-8", "backslashreplace").decode()
