"""The front before Triton: requests are read whole, bounded, allowed, held and handed on.

Triton reads HTTP with libevhtp, in threads with 8 MiB of stack, and keeps on that stack what grows
with a request: a body that calls itself a form (curl's ``-d`` does) twice, which ends the server
from 4 MiB on; 16 bytes for each piece of a chunked body (600,000 pieces end it); a call for each
level of nested JSON (100,000 levels do). And it sets memory aside for a shape before it looks at
the data (``"shape": [4611686018427387904]`` ends it). It has no option that bounds a body. Here a
body is bounded, a form is JSON, chunked and compressed bodies become plain ones, and JSON that is
none, is nested deeper than any request needs, or claims more data than it has, is refused. Only
what is in the list of routes is handed on at all; the headers that Triton sees are those below.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from yarl import URL

from ...foundation.requests import RequestError
from ..limits import NOT_NOW, TOO_LARGE
from ..workers.protocol import FAULT
from .admission import Access, Admission, TooMuchError, check_shapes, is_deeper, tls_context
from .grpc_front import GrpcFront
from .replica import Replica, is_broken
from .upstreams import DeadlyError, EndingError, Upstream, Upstreams

DEEPEST = 64
"""Levels of lists and objects in a request; Triton's protocol needs about six."""
ABSENT = "the server is starting, or ending"
JSON_LENGTH = "Inference-Header-Content-Length"
"""Says how much of a body is JSON; what follows are tensors as they are."""
HANDED_ON = ("content-type", "accept-encoding", JSON_LENGTH.lower())
"""Headers of a request that Triton is shown."""
BODIES_AT_ONCE = 8
"""So many times the largest body are the bytes of all requests in hand."""
_OF_THE_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "content-length", "upgrade")
_UNREAD = tuple(
    b'{"error":"' + begin
    for begin in (b"failed to parse the request JSON buffer", b"Unable to parse ")
)
"""What Triton answers with 500 where a request lacks something, or only its parser cannot read it
(a zero byte in a text)."""
_BATCH_SIZE = re.compile(rb"inference request batch-size must be <= (\d+) for '([^']*)'")
"""What Triton answers with 400 where a request has more rows than a model takes at once."""
_FORM = "application/x-www-form-urlencoded"
# It would show a traceback for whatever is no HTTP; its sender gets a 400.
_SILENT = logging.getLogger(f"{__name__}.aiohttp")
_SILENT.setLevel(logging.CRITICAL)
# Triton has statistics at the path of a model of that name.
_MODEL = "/v2/models/{model:(?!stats(?:/|$))[A-Za-z0-9_.-]+}"
_VERSION = _MODEL + "/versions/{version:[0-9]+}"

Page = Callable[[], Awaitable[tuple[bytes, Mapping[str, str]]]]


@dataclass(frozen=True)
class FrontLimits:
    """How much is taken."""

    body: int = 64 << 20
    """Bytes of a body, after it is decompressed."""
    requests: int = 256
    """In hand at once."""
    seconds: float = 60.0
    """From a request's first byte to its answer."""


@dataclass(frozen=True)
class Listeners:
    """Sockets and addresses at which a server is reached."""

    http: socket.socket
    metrics: socket.socket
    grpc: str | None
    """Host and port; None for no gRPC."""
    access: Access = field(default_factory=Access)
    tls: tuple[Path, Path] | None = None


OwnRoute = Callable[["Front", bytes], Awaitable[web.Response]]


class Front:
    """Answers for a server, in a thread of its own; it closes the sockets of its listeners.

    Without a ``page`` there is none.
    """

    def __init__(
        self,
        listeners: Listeners,
        bounds: FrontLimits,
        routes: Mapping[str, OwnRoute],
        page: Page | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """Start to listen; Triton need not be there yet."""
        self._listeners, self._bounds, self._page = listeners, bounds, page
        self._registry = registry or CollectorRegistry()
        self._routes = dict(routes)
        most_bytes = BODIES_AT_ONCE * bounds.body
        self._admission = Admission(bounds.requests, most_bytes, self._registry)
        self._stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="front", daemon=True)
        self._thread.start()
        try:
            self._wait_for(self._open())
        except BaseException:
            self.close()
            raise

    def switch(self, replica: Replica | None) -> None:
        """Have another Triton answer from now on; None while there is none."""

        async def change() -> None:
            self._upstreams.switch(replica)

        self._wait_for(change())

    def refuse_new(self) -> None:
        """Hand nothing new on; what is in flight is still answered.

        Triton ends when its last connection has gone, and ours go when they are idle.
        """
        self._loop.call_soon_threadsafe(self._upstreams.refuse_new)

    def close(self) -> None:
        """Send what is answered already, then close every connection."""
        if not self._loop.is_closed():
            self._wait_for(self._stack.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        self._upstreams = Upstreams()
        self._stack.push_async_callback(self._upstreams.close)
        listeners, bounds = self._listeners, self._bounds
        await self._listen(listeners.http, self._http_routes())
        await self._listen(listeners.metrics, [web.get("/metrics", self._answer_metrics)])
        if listeners.grpc is not None:
            front = GrpcFront(
                self._upstreams, listeners.access, self._admission, bounds.seconds, bounds.body
            )
            await front.start(listeners.grpc, listeners.tls)
            self._stack.push_async_callback(front.close)

    async def _listen(self, listener: socket.socket, routes: Sequence[web.RouteDef]) -> None:
        application = web.Application(client_max_size=self._bounds.body, middlewares=[self._guard])
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None, logger=_SILENT, shutdown_timeout=5.0)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        tls = None if self._listeners.tls is None else tls_context(*self._listeners.tls)
        await web.SockSite(runner, listener, backlog=1024, ssl_context=tls).start()

    def _http_routes(self) -> list[web.RouteDef]:
        described = [
            web.get(path, self._answer_described)
            for path in ("/v2", *(p + e for p in (_MODEL, _VERSION) for e in ("", "/ready")))
        ]
        return [
            web.get("/v2/health/live", self._answer_live),
            web.get("/v2/health/ready", self._answer_ready),
            *described,
            *(web.post(f"{path}/infer", self._answer_infer) for path in (_MODEL, _VERSION)),
            *(web.post(path, self._answer_own) for path in self._routes),
            *([] if self._page is None else [web.get("/", self._answer_page)]),
        ]

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Let those in who may, as many as there is room for, for a while; errors are JSON."""
        is_health = request.path.startswith("/v2/health/")
        has_work = request.method == "POST"  # a busy server still shows its state
        if not is_health and not self._listeners.access.allows(
            request.headers.get("Authorization")
        ):
            refused = _refuse(401, "expected the header `Authorization: Bearer TOKEN`")
            refused.headers["WWW-Authenticate"] = 'Basic realm="merlin-sim", charset="UTF-8"'
            return refused
        if self._upstreams.is_ending and not request.path.startswith("/v2/health/live"):
            return _refuse(503, ABSENT)
        most = self._bounds.body
        length = request.content_length
        if length is None or "Content-Encoding" in request.headers:
            length = most if request.can_read_body else 0
        try:
            if (request.content_length or 0) > most:
                raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
            with self._admission.enter(length) if has_work else nullcontext():
                return await asyncio.wait_for(handler(request), self._bounds.seconds)
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, f"expected a body of at most {most:,} bytes")
        except web.HTTPException as error:
            return _refuse(error.status, f"{request.method} {request.path}: {error.reason}")
        except TooMuchError as error:
            return _refuse(429, str(error))
        except asyncio.TimeoutError:
            return _refuse(503, f"no answer within {self._bounds.seconds:g} s")
        except EndingError:
            return _refuse(503, ABSENT)
        except DeadlyError as error:
            return _refuse(503, str(error))
        except RequestError as error:
            return _refuse(400, str(error))
        except Exception as error:  # the client is shown no path of the server
            _note(f"{request.method} {request.path}: {error!r}")
            return _refuse(500, FAULT)

    async def _answer_live(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _answer_ready(self, request: web.Request) -> web.Response:
        is_ready = self._upstreams.active is not None and not self._upstreams.is_ending
        return web.Response() if is_ready else _refuse(503, ABSENT)

    async def _answer_page(self, request: web.Request) -> web.Response:
        assert self._page is not None
        content, headers = await self._page()
        return web.Response(body=content, headers=headers)

    async def _answer_described(self, request: web.Request) -> web.Response:
        return await self._ask("GET", request.path)

    async def _answer_infer(self, request: web.Request) -> web.Response:
        body = await _read(request)
        check_body(body, request.headers.get(JSON_LENGTH))
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name.lower() in HANDED_ON and not value.lower().startswith(_FORM)
        ]
        return await self._ask("POST", request.path, body, headers)

    async def _answer_own(self, request: web.Request) -> web.Response:
        body = await _read(request)
        check_body(body, None)
        return await self._routes[request.path](self, body)

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        own = generate_latest(self._registry).decode()
        upstream = self._upstreams.active
        if upstream is None:
            return web.Response(text=own)
        try:
            async with upstream.metrics.get("http://triton/metrics") as response:
                return web.Response(text=await response.text() + own)
        except (aiohttp.ClientError, OSError):
            return web.Response(text=own)

    async def infer(self, model: str, body: bytes) -> web.Response:
        """Ask a model in Triton's protocol."""
        return await self._ask("POST", f"/v2/models/{model}/infer", body)

    async def _ask(
        self, method: str, path: str, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()
    ) -> web.Response:
        url = URL(f"http://triton{path}")

        async def send(upstream: Upstream) -> web.Response | None:
            try:
                async with upstream.http.request(
                    method, url, data=body or None, headers=headers, allow_redirects=False
                ) as response:
                    content = await response.read()
            except (aiohttp.ClientError, OSError):
                return None
            if response.status >= 500 and is_broken(content):
                return None
            return _response(response.status, content, response.headers)

        return await self._upstreams.ask(send)


async def _read(request: web.Request) -> bytes:
    try:
        return await request.read()
    except aiohttp.ClientPayloadError:
        raise RequestError("expected a body as its headers describe it") from None


def _response(status: int, content: bytes, headers: Mapping[str, str]) -> web.Response:
    """Make of Triton's answer ours: what is the request's fault says so, what is not says little.

    What is too large gets 413, what cannot be answered just now 503.
    """
    if status == 400 and (problem := _too_large(content)) is not None:
        return _refuse(413, problem)
    if status == 500 and content.startswith(_UNREAD):
        status = 400
    if status >= 500:
        problem = _error_of(content)
        if problem.startswith(NOT_NOW):
            return _refuse(503, problem.removeprefix(NOT_NOW))
        if problem != FAULT:
            _note(f"Triton answered {status}: {problem}")
        return _refuse(500, FAULT)
    kept = [(name, v) for name, v in headers.items() if name.lower() not in _OF_THE_CONNECTION]
    return web.Response(status=status, body=content, headers=kept)


def _error_of(content: bytes) -> str:
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return content.decode("utf-8", "replace")


def _too_large(content: bytes) -> str | None:
    """Say why a request that Triton or a model refused is too large; None where it is not."""
    if (found := _BATCH_SIZE.search(content)) is not None:
        most, model = int(found[1]), found[2].decode("utf-8", "replace")
        return (
            f"expected at most {most:,} events in a request to {model!r}: split it, and send the "
            "parts one after the other"
        )
    begin, mark, _ = content.partition(TOO_LARGE.encode())
    if not mark or begin != b'{"error":"':
        return None
    return _error_of(content).removeprefix(TOO_LARGE)


def check_body(body: bytes, json_length: str | None) -> None:
    """Refuse a body that Triton could not bear."""
    length = len(body)
    if json_length is not None:
        if not (json_length.isascii() and json_length.isdigit() and int(json_length) <= length):
            raise RequestError(f"{JSON_LENGTH}: expected 0 to {length}, received {json_length:.20}")
        length = int(json_length)
    text = body[:length]
    if is_deeper(text, DEEPEST):
        raise RequestError(f"expected JSON nested at most {DEEPEST} levels deep")
    if text:
        check_shapes(text)


def _note(message: str) -> None:
    print(f"merlin-sim: {message}", file=sys.stderr, flush=True)


def _refuse(status: int, message: str) -> web.Response:
    later = {"Retry-After": "1"} if status in (429, 503) else None
    return web.json_response({"error": message}, status=status, headers=later)
