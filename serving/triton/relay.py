"""The model's side in Triton: hands requests to a worker and its answers back.

Imported inside Triton only, and without TensorFlow.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as backend

from ..limits import NOT_NOW
from ..settings import ModelSettings
from ..workers import protocol

FINAL = backend.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_CODES = {
    protocol.INVALID: "INVALID_ARG",
    protocol.UNAVAILABLE: "UNAVAILABLE",
    protocol.INTERNAL: "INTERNAL",
}


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


MOST_DEATHS = 3
"""Deaths of a worker over one request after which that is refused."""
CONNECT_SECONDS = 30.0
ENDED_OVER_IT = f"{NOT_NOW}the model ended {MOST_DEATHS} times over this request"


class _Waiting:
    """A request that a worker has."""

    def __init__(self, request: Any, tensors: dict[str, Any]) -> None:
        self.request = request  # which owns the memory of the tensors
        self.tensors = tensors
        self.outputs = list(request.requested_output_names())
        self.is_probe = request.request_id() == protocol.PROBE
        self.sender = request.get_response_sender()
        self.answered = threading.Event()
        self.deaths = 0


class TritonPythonModel:
    """Whatever model Triton has by its name; a worker that dies is replaced, and asked again."""

    def initialize(self, args: dict[str, str]) -> None:
        """Ask for a worker, and wait until it can answer."""
        self.name = args["model_name"]
        self.folder = Path(args["model_repository"]).parents[1]
        protocol.write_process(self.folder, self.name, protocol.STUB)
        self.socket = ModelSettings.read(self.folder).fork_server
        # Triton merges what waits while this is busy, if the model takes several rows at once.
        self.waits = '"max_batch_size":0' not in args["model_config"].replace(" ", "")
        self.waiting: dict[int, _Waiting] = {}
        self.count = 0
        self.lock = threading.RLock()
        self.is_ending = False
        self.connection = self._connect()
        self.thread = threading.Thread(target=self._receive, name="answers", daemon=True)
        self.thread.start()

    def execute(self, requests: Sequence[Any]) -> None:
        """Hand requests on; they are answered when the worker has."""
        taken = {}
        with self.lock:
            for request in requests:
                taken[self.count] = _Waiting(request, read_tensors(request))
                self.count += 1
            self.waiting |= taken
            try:
                self._send(taken)
            except OSError:
                pass  # the thread that receives sees it, too, and sends them again
        if self.waits:
            for one in taken.values():
                one.answered.wait()

    def finalize(self) -> None:
        """Let the worker answer what it has, and end."""
        self.is_ending = True
        end = time.monotonic() + CONNECT_SECONDS
        while self.waiting and time.monotonic() < end:
            time.sleep(0.01)
        self.connection.shutdown(socket.SHUT_RDWR)
        self.thread.join(CONNECT_SECONDS)

    def _connect(self) -> socket.socket:
        end = time.monotonic() + CONNECT_SECONDS
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self.socket)
                protocol.send_frame(connection, {"folder": str(self.folder), "model": self.name})
                ready = protocol.receive_frame(connection)
            except OSError:
                ready = None
            if ready is not None:
                break
            connection.close()
            if time.monotonic() > end:
                raise RuntimeError(f"no worker for the model {self.name!r} could be started")
            time.sleep(0.05)
        if ready.message["kind"] == protocol.FAILED:
            raise RuntimeError(ready.message["message"])
        return connection

    def _send(self, requests: dict[int, _Waiting]) -> None:
        described = [[number, one.outputs, one.is_probe] for number, one in requests.items()]
        tensors = {
            f"{number}/{name}": tensor
            for number, one in requests.items()
            for name, tensor in one.tensors.items()
        }
        protocol.send_frame(self.connection, {"requests": described}, tensors)

    def _receive(self) -> None:
        while not self.is_ending:
            try:
                while (frame := protocol.receive_frame(self.connection)) is not None:
                    message = frame.message
                    if message["kind"] == protocol.ANSWER:
                        self._answer(message["request"], answer(frame.tensors))
                    elif message["kind"] == protocol.REFUSAL:
                        self._answer(
                            message["request"], refuse(message["code"], message["message"])
                        )
            except OSError:
                pass
            if not self.is_ending:
                self._begin_again()

    def _answer(self, number: int, response: Any) -> None:
        with self.lock:
            one = self.waiting.pop(number)
        one.sender.send(response, flags=FINAL)
        one.answered.set()

    def _begin_again(self) -> None:
        """Have another worker answer what the one that died had, one request after the other.

        The oldest is the one over which it may have died: a batch is forgiven once.
        """
        try:
            connection = self._connect()
        except RuntimeError:
            os._exit(1)  # Triton sees that, and so does who watches it
        with self.lock:
            self.connection.close()
            self.connection = connection
            oldest = min(self.waiting, default=None)
            if oldest is not None:
                self.waiting[oldest].deaths += 1
                if self.waiting[oldest].deaths >= MOST_DEATHS:
                    self._answer(oldest, refuse(protocol.UNAVAILABLE, ENDED_OVER_IT))
            try:
                for number, one in self.waiting.items():
                    self._send({number: one})
            except OSError:
                pass  # it died at once: once more
