"""The protocol of a model's stub in Triton and its worker: JSON, and arrays as they lie in memory.

    frame    header length (4 bytes), payload length (8 bytes), header, payload
    header   {"message": ..., "tensors": [[name, dtype, shape, bytes], ...]}

An array of texts is the length of each, then their bytes. Nothing in a frame is executed.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

READY, FAILED, ANSWER, REFUSAL = "ready", "failed", "answer", "refusal"
"""Kinds of messages of a worker."""
INVALID, UNAVAILABLE, INTERNAL = "invalid", "unavailable", "internal"
"""Codes of a refusal: whose fault it is."""
FAULT = "the server failed on this request: its log says why"
"""The message for what is no request's fault."""
PROBE = "merlin-sim-probe"
"""The id of a request by which the server asks itself."""
STUB, WORKER = "stub", "worker"
WORKER_NAME = "merlin-worker"
"""What `ps` and `top` call one."""
_PROBES = "probes"


def probe_file(folder: Path, model: str) -> Path:
    """Where a model's worker writes a request that it answers."""
    return folder / _PROBES / f"{model}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a small file that others read, whole or not at all, and the folder that it is in."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_process(folder: Path, model: str, part: str) -> None:
    """Note which process this is: the stub in Triton, or the worker."""
    write_whole(folder / _PROBES / f"{model}.{part}", str(os.getpid()))


def processes_of(folder: Path, model: str) -> list[int]:
    """Return the processes that work for a model, as far as they have begun."""
    found = []
    for part in (STUB, WORKER):
        with suppress(OSError, ValueError):
            found.append(int((folder / _PROBES / f"{model}.{part}").read_text()))
    return found


EVENT = "event"
VERSION = "version"
"""Name of the output that says which version of a registry answered an event."""
SCORES, UNSEEN_USER, UNSEEN_CANDIDATES = "scores", "unseen_user", "unseen_candidates"


Tensors = Mapping[str, npt.NDArray[Any]]
_LENGTHS = struct.Struct("<IQ")
_TEXTS = "texts"


def type_of_numbers(dtype: np.dtype[Any]) -> str:
    """Triton's name of a type of numbers, as FP32."""
    kind = {"i": "INT", "u": "UINT", "f": "FP"}[dtype.kind]
    return f"{kind}{8 * dtype.itemsize}"


class Frame(NamedTuple):
    """One message."""

    message: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def send_frame(
    connection: socket.socket, message: Mapping[str, Any], tensors: Tensors | None = None
) -> None:
    """Send a message; several threads should take turns."""
    described, parts = [], []
    for name, tensor in (tensors or {}).items():
        kind, content = _to_bytes(tensor)
        described.append([name, kind, list(tensor.shape), sum(map(len, content))])
        parts += content
    header = json.dumps({"message": message, "tensors": described}).encode()
    payload = b"".join(parts)
    connection.sendall(_LENGTHS.pack(len(header), len(payload)) + header + payload)


def receive_frame(connection: socket.socket) -> Frame | None:
    """Wait for a message; None where the other side has gone.

    Raises:
        OSError: Where the connection broke.
    """
    lengths = _receive(connection, _LENGTHS.size)
    if lengths is None:
        return None
    of_header, of_payload = _LENGTHS.unpack(lengths)
    header, payload = _receive(connection, of_header), _receive(connection, of_payload)
    if header is None or payload is None:
        return None
    document = json.loads(bytes(header))
    return Frame(document["message"], dict(_from_bytes(document["tensors"], payload)))


def _receive(connection: socket.socket, length: int) -> memoryview | None:
    received = memoryview(bytearray(length))
    done = 0
    while done < length:
        count = connection.recv_into(received[done:])
        if not count:
            return None
        done += count
    return received


def _to_bytes(tensor: npt.NDArray[Any]) -> tuple[str, list[bytes]]:
    if tensor.dtype != object:
        return tensor.dtype.str, [np.ascontiguousarray(tensor).tobytes()]
    texts = [text.encode() if isinstance(text, str) else bytes(text) for text in tensor.flat]
    return _TEXTS, [np.array([len(text) for text in texts], "<i8").tobytes(), *texts]


def _from_bytes(
    described: list[list[Any]], payload: memoryview
) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    begin = 0
    for name, kind, shape, length in described:
        part = payload[begin : begin + length]
        begin += length
        if kind != _TEXTS:
            yield name, np.frombuffer(part, np.dtype(kind)).reshape(shape)
            continue
        count = int(np.prod(shape))
        lengths = np.frombuffer(part[: 8 * count], "<i8")
        ends = 8 * count + np.cumsum(lengths)
        texts = np.empty(count, object)
        for index, (end, size) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
            texts[index] = bytes(part[end - size : end])
        yield name, texts.reshape(shape)
