"""What passes between a model in Triton and its worker: JSON, and arrays as they lie in memory.

    frame    header length (4 bytes), payload length (8 bytes), header, payload
    header   {"message": ..., "tensors": [[name, dtype, shape, bytes], ...]}

An array of texts is the length of each, then their bytes. Nothing in a frame is executed.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Tensors = Mapping[str, npt.NDArray[Any]]
_LENGTHS = struct.Struct("<IQ")
_TEXTS = "texts"


class Frame(NamedTuple):
    """One message."""

    message: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any]]


def send_frame(
    connection: socket.socket, message: Mapping[str, Any], tensors: Tensors | None = None
) -> None:
    """Send a message; several threads should take turns.

    Raises:
        OSError: Where nobody listens any more.
    """
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
        for place, (end, size) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
            texts[place] = bytes(part[end - size : end])
        yield name, texts.reshape(shape)
