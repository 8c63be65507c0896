"""Who may ask a server, how much at once, and what no body may hold."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import math
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from ...foundation.exceptions import MerlinSimError
from ...foundation.requests import RequestError

LEAST_CHARACTERS = 16
"""Of a token: shorter ones can be guessed."""


class Access:
    """Knows the tokens that open a server; without any, all requests are admitted.

    >>> access = Access(("a token of many characters",))
    >>> access.allows("Bearer a token of many characters"), access.allows("Bearer another")
    (True, False)
    """

    def __init__(self, tokens: tuple[str, ...] = ()) -> None:
        self._tokens = tuple(token.encode() for token in tokens)

    @classmethod
    def read(cls, path: Path | None) -> Access:
        """Read a file of tokens, one a line; several let one be replaced by another."""
        if path is None:
            return cls()
        try:
            mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise MerlinSimError(f"`token_file`: {path} cannot be read: {error}") from error
        if mode & 0o077:
            raise MerlinSimError(
                f"`token_file`: {path} should be for its user alone: chmod 600 {path}"
            )
        tokens = tuple(filter(None, map(str.strip, text.splitlines())))
        if not tokens or min(map(len, tokens)) < LEAST_CHARACTERS:
            raise MerlinSimError(
                f"`token_file`: {path} should have a token a line, each of at least "
                f"{LEAST_CHARACTERS} characters, as `openssl rand -hex 32` makes one."
            )
        return cls(tokens)

    def allows(self, authorization: str | None) -> bool:
        """Return whether a header has a token: ``Bearer``, or as the password of ``Basic``."""
        if not self._tokens:
            return True
        kind, _, given = (authorization or "").partition(" ")
        if kind.lower() == "basic":  # what a browser asks its user for
            try:
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif kind.lower() != "bearer":
            return False
        found = given.strip().encode("utf-8", "surrogatepass")
        matches = [hmac.compare_digest(found, token) for token in self._tokens]  # all are compared
        return any(matches)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Read a certificate, with those that lead to its root, and its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise MerlinSimError(
            f"`tls_certificate`, `tls_key`: expected a certificate and its key as PEM in "
            f"{certificate} and {key}: {error}"
        ) from error
    return context


class TooMuchError(Exception):
    """More than a server takes at once; the message says of what."""


class Admission:
    """Counts the requests in hand, and the bytes of their bodies.

    >>> admission = Admission(most_requests=1, most_bytes=10)
    >>> with admission.enter(4):
    ...     with admission.enter(4): pass
    Traceback (most recent call last):
    merlin_sim.serving.triton.admission.TooMuchError: 1 requests are in hand, as many as are taken \
at once
    """

    def __init__(
        self, most_requests: int, most_bytes: int, registry: CollectorRegistry | None = None
    ) -> None:
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self.requests = 0
        self.bytes = 0
        registry = registry or CollectorRegistry()
        self._refused = Counter(
            "merlin_sim_requests_refused", "Requests that were too many at once", registry=registry
        )
        Gauge(
            "merlin_sim_requests_in_hand",
            "Requests that the server has taken and not answered",
            registry=registry,
        ).set_function(lambda: self.requests)

    @contextmanager
    def enter(self, length: int) -> Iterator[None]:
        """Count a request while it is answered; refuse what is too much."""
        if self.requests >= self._most_requests:
            self._refused.inc()
            raise TooMuchError(
                f"{self.requests} requests are in hand, as many as are taken at once"
            )
        if self.requests and self.bytes + length > self._most_bytes:
            self._refused.inc()
            raise TooMuchError(f"requests of {self.bytes:,} bytes are in hand")
        self.requests += 1
        self.bytes += length
        try:
            yield
        finally:
            self.requests -= 1
            self.bytes -= length


# A string runs to its closing quote or to the end of the text, so that nothing is read twice.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_OTHERS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(_OPENING)], _STEPS[list(_CLOSING)] = 1, -1


def is_deeper(text: bytes, depth: int) -> bool:
    """Whether lists and objects are nested deeper than ``depth`` anywhere in a JSON text.

    Where the text is not JSON, the answer is about the part before its first mistake.

    >>> is_deeper(b'{"a": [[1], ["[[["]]}', 3), is_deeper(b'{"a": [[1], ["[[["]]}', 2)
    (False, True)
    """
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    brackets = _STRING.sub(b"", text).translate(None, delete=_OTHERS)
    steps = _STEPS[np.frombuffer(brackets, np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > depth)


def check_shapes(text: bytes) -> None:
    """Refuse data that claims more elements than its request has bytes.

    Triton sets memory aside for the shape before it looks at the data. No depth is checked.
    """

    def check(pairs: list[tuple[str, Any]]) -> None:
        # Of a key that stands twice one parser takes the first and another the last.
        if any(key == "data" for key, _ in pairs):
            for shape in (value for key, value in pairs if key == "shape"):
                _check_shape(shape, len(text))

    try:
        # Bytes are let through as they are: here only keys and numbers matter.
        json.loads(text.decode("latin-1"), object_pairs_hook=check, strict=False)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"expected one JSON object: {error.msg}, at character {error.pos + 1}"
        ) from None
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"expected one JSON object: {error}") from None


def _check_shape(shape: Any, most: int) -> None:
    if not isinstance(shape, list) or not all(isinstance(length, int) for length in shape):
        return  # Triton says what is wrong with it
    # Each length counts, so that none is hidden by another that is 0.
    if math.prod(max(abs(length), 1) for length in shape) > most:
        raise RequestError(f"shape: expected as many elements as data has, received {shape!s:.60}")
