"""A worker: one model in a process of its own, asked by the model's stub in Triton."""

from __future__ import annotations

import importlib
import json
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy.typing as npt

from ...foundation.requests import RequestError
from ..limits import NOT_NOW, TOO_LARGE, TooLargeError, UnavailableError
from ..settings import ModelSettings
from . import protocol

Outputs = Mapping[str, npt.NDArray[Any]]
Asked = TypeVar("Asked")
Reply = Callable[[int, Outputs | Exception], None]
"""Answers a request by its index, once."""


@dataclass(frozen=True)
class TritonRequest:
    """One request of Triton's."""

    tensors: Mapping[str, npt.NDArray[Any]]
    outputs: frozenset[str]
    """Those that it asks for."""
    is_probe: bool = False
    """Whether the server asks itself, which is not counted."""


class WorkerModel(Protocol):
    """A model in a worker."""

    merges: bool
    """Whether it takes together what comes while it works; Triton puts the others' together."""

    def __init__(self, settings: ModelSettings) -> None:
        """Load it."""

    def probe(self) -> Mapping[str, npt.NDArray[Any]]:
        """Return the inputs of a request that it answers, if anything is as it should be."""

    def take(self, requests: Sequence[TritonRequest], reply: Reply) -> None:
        """Answer requests that came together; what fails, fails alone."""

    def close(self) -> None:
        """Close what was opened."""


def refusal(error: Exception) -> tuple[str, str]:
    """Say what is wrong: with the request, or else with the server.

    What is not the request's fault is written to the log; who asked is not shown a path or an
    address.
    """
    if isinstance(error, RequestError):
        begin = TOO_LARGE if isinstance(error, TooLargeError) else ""
        kind, message = protocol.INVALID, f"{begin}{error}"
    elif isinstance(error, UnavailableError):
        kind, message = protocol.UNAVAILABLE, f"{NOT_NOW}{error}"
    else:
        traceback.print_exception(error, file=sys.stderr)
        sys.stderr.flush()
        kind, message = protocol.INTERNAL, protocol.FAULT
    return kind, message.encode("utf-8", "backslashreplace").decode()


WARM_UPS = 3
"""Requests that a model answers before anybody waits for it: the first prepares it."""


class Worker:
    """Answers what comes through a connection until the other side has gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._unreadable: Exception | None = None
        """Why nothing more can be read, where the stub has not just gone."""

    def run(self) -> None:
        """Load the model that the first message names, and answer."""
        opening = protocol.receive_frame(self._connection)
        if opening is None:
            return
        try:
            model = self._load(opening.message)
        except Exception as error:  # the server that starts it reports why it cannot
            self._send({"kind": protocol.FAILED, "message": f"{type(error).__name__}: {error}"})
            return
        frames: queue.SimpleQueue[protocol.Frame | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(frames,), name="requests", daemon=True).start()
        try:
            while (frame := frames.get()) is not None:
                together = [frame]
                while model.merges and not frames.empty() and (more := frames.get()) is not None:
                    together.append(more)
                self._take(model, together)
            if self._unreadable is not None:
                raise self._unreadable
        except OSError:  # the stub was killed
            pass
        finally:
            model.close()

    def _read(self, frames: queue.SimpleQueue[protocol.Frame | None]) -> None:
        """Read requests while the model works; None says that all have come."""
        try:
            while (frame := protocol.receive_frame(self._connection)) is not None:
                frames.put(frame)
        except Exception as error:  # the process ends with it, and is replaced
            self._unreadable = error
        finally:
            frames.put(None)
            frames.put(None)  # the first may have ended a batch

    def _load(self, opening: Mapping[str, Any]) -> WorkerModel:
        folder, name = Path(opening["folder"]), opening["model"]
        protocol.write_process(folder, name, protocol.WORKER)
        settings = ModelSettings.read(folder)
        module, _, kind = settings.workers[name].rpartition(".")
        model: WorkerModel = getattr(importlib.import_module(module), kind)(settings)
        probe = model.probe()
        for _ in range(WARM_UPS):
            warm_up(model, probe)
        _write_probe(protocol.probe_file(folder, name), probe)
        self._send({"kind": protocol.READY})
        return model

    def _take(self, model: WorkerModel, frames: Sequence[protocol.Frame]) -> None:
        requests, numbers = [], []
        for frame in frames:
            for number, outputs, is_probe in frame.message["requests"]:
                own = f"{number}/"
                tensors = {
                    name.removeprefix(own): tensor
                    for name, tensor in frame.tensors.items()
                    if name.startswith(own)
                }
                requests.append(TritonRequest(tensors, frozenset(outputs), is_probe))
                numbers.append(number)

        def reply(index: int, result: Outputs | Exception) -> None:
            message = {"kind": protocol.ANSWER, "request": numbers[index]}
            if isinstance(result, Exception):
                code, text = refusal(result)
                self._send({**message, "kind": protocol.REFUSAL, "code": code, "message": text})
            else:
                self._send(message, result)

        model.take(requests, reply)

    def _send(self, message: Mapping[str, Any], tensors: Outputs | None = None) -> None:
        with self._sending:
            protocol.send_frame(self._connection, message, tensors)


def warm_up(model: WorkerModel, probe: Mapping[str, npt.NDArray[Any]]) -> None:
    """Have a model answer its probe."""
    found: list[Outputs | Exception] = []
    model.take(
        [TritonRequest(probe, frozenset(), is_probe=True)], lambda _, result: found.append(result)
    )
    # Rules may ask for what is not known here, and a store may be away: that is an answer, too.
    if isinstance(found[0], Exception) and not isinstance(
        found[0], RequestError | UnavailableError
    ):
        raise found[0]


def answer_apart(answer: Callable[[Sequence[Asked]], Sequence[Any]], asked: Sequence[Asked]) -> Any:
    """Answer what came together; where that fails, each by itself, as one of them is the reason.

    One that fails has its error instead.
    """
    try:
        return [*answer(asked)]
    except Exception as error:  # whatever TensorFlow has to say
        if len(asked) == 1:
            return [error]
        return [found for one in asked for found in answer_apart(answer, [one])]


def _write_probe(path: Path, probe: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write the probe as Triton's HTTP takes a request."""
    inputs = []
    for name, tensor in probe.items():
        if tensor.dtype == object:
            kind = "BYTES"
            data = [text if isinstance(text, str) else text.decode() for text in tensor.flat]
        else:
            kind, data = protocol.type_of_numbers(tensor.dtype), tensor.ravel().tolist()
        inputs.append({"name": name, "shape": list(tensor.shape), "datatype": kind, "data": data})
    protocol.write_whole(path, json.dumps({"id": protocol.PROBE, "inputs": inputs}))
