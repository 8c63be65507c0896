"""What stands before Triton's HTTP: requests are read whole, bounded, and handed on.

Triton reads HTTP with libevhtp, in threads with 8 MiB of stack, and keeps on that stack what grows
with a request: a body that calls itself a form (curl's ``-d`` does) twice, which ends the server
from 4 MiB on; 16 bytes for each piece of a chunked body (600,000 pieces end it); a call for each
level of nested JSON (100,000 levels do). And it sets memory aside for a shape before it looks at
the data (``"shape": [4611686018427387904]`` ends it). It has no option that bounds a body. Here a
body is bounded, a form is JSON, chunked and compressed bodies become plain ones, and JSON that is
none, is nested deeper than any request needs, or claims more data than it has, is refused. Triton
itself listens on sockets in a folder of ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from ..limits import TOO_LARGE, RequestError
from .json_depth import is_deeper
from .json_shapes import check_shapes

DEEPEST = 64
"""Levels of lists and objects in a request; Triton's protocol needs about six."""
IDLE_SECONDS = 1.0
"""How long a connection to Triton is kept for the next request."""
ABSENT = "the server is starting, ending, or has ended over a request"
JSON_LENGTH = "Inference-Header-Content-Length"
"""Says how much of a body is JSON; what follows are tensors as they are."""
_OF_THE_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "content-length", "upgrade")
_NOT_ASKED_ON = {*_OF_THE_CONNECTION, "host", "expect", "content-encoding", "te", "trailer"}
_UNREAD = tuple(
    b'{"error":"' + begin
    for begin in (b"failed to parse the request JSON buffer", b"Unable to parse ")
)
"""What Triton answers with 500 where a request lacks something, or only its parser cannot read it
(a zero byte in a text)."""
_BATCH_SIZE = re.compile(rb"inference request batch-size must be <= (\d+) for '([^']*)'")
"""What Triton answers with 400 where a request has more rows than a model takes at once."""
_FORM = "application/x-www-form-urlencoded"
# It would show a traceback for whatever is no HTTP; whoever sent it is told.
_SILENT = logging.getLogger(f"{__name__}.aiohttp")
_SILENT.setLevel(logging.CRITICAL)
_ADDED_UNASKED = ("Accept-Encoding", "Content-Type", "User-Agent")


Answer = Callable[[bytes], Awaitable[tuple[int, dict[str, Any]]]]
"""Makes of a body a status, and what is answered as JSON."""

Page = Callable[[], Awaitable[tuple[bytes, Mapping[str, str]]]]
"""Makes a page and its headers."""


@dataclass(frozen=True)
class Detour:
    """A path at which a model of Triton's is asked and answers in plain JSON."""

    model: str
    ask: Callable[[bytes], bytes]
    """Makes of a body a request of Triton's protocol; a RequestError says why it cannot."""
    tell: Callable[[bytes], bytes]
    """Makes of what Triton answered what is told."""


@dataclass(frozen=True)
class Door:
    """A socket that people reach, and the one of Triton's behind it."""

    listener: socket.socket
    upstream: Path
    methods: Sequence[str]
    most_bytes: int
    """Of a body, after it is decompressed."""
    answered_here: Mapping[str, Answer] = field(default_factory=dict)
    """By path, what answers a POST in Triton's place."""
    detours: Mapping[str, Detour] = field(default_factory=dict)
    """By path, the model that a POST is for."""
    added: Callable[[], str] | None = None
    """Tells what stands below each page that is got."""
    pages: Mapping[str, Page] = field(default_factory=dict)
    """By path, what answers a GET with a page."""


class Front:
    """Hands requests on to Triton, in a thread of its own.

    Args:
        doors: What to listen on, and where it leads. The sockets are closed with the front.
    """

    def __init__(self, doors: Sequence[Door]) -> None:
        """Start to listen; Triton need not be there yet."""
        self._stack = AsyncExitStack()
        self._porters: list[_Porter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="front", daemon=True)
        self._thread.start()
        self._wait_for(self._open(doors))

    def refuse_new(self) -> None:
        """Hand nothing new on; what is in flight is still answered.

        Triton ends when its last connection has gone, and ours go when they are idle.
        """
        for porter in self._porters:
            porter.is_ending = True

    def close(self) -> None:
        """Send what is answered already, then close every connection."""
        if not self._loop.is_closed():
            self._wait_for(self._stack.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, doors: Sequence[Door]) -> None:
        for door in doors:
            connector = aiohttp.UnixConnector(
                str(door.upstream), limit=0, keepalive_timeout=IDLE_SECONDS
            )
            session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                skip_auto_headers=_ADDED_UNASKED,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            await self._stack.enter_async_context(session)
            application = web.Application(client_max_size=door.most_bytes)
            porter = _Porter(door, session)
            self._porters.append(porter)
            application.router.add_route("*", "/{path:.*}", porter.answer)
            runner = web.AppRunner(
                application, access_log=None, logger=_SILENT, shutdown_timeout=5.0
            )
            await runner.setup()
            self._stack.push_async_callback(runner.cleanup)
            await web.SockSite(runner, door.listener, backlog=1024).start()


class _Porter:
    """Hands requests through one door."""

    def __init__(self, door: Door, session: aiohttp.ClientSession) -> None:
        self.door = door
        self.session = session
        self.is_ending = False

    async def answer(self, request: web.Request) -> web.Response:
        """Hand a request on, or say why not; the words are JSON like Triton's own."""
        if request.method not in self.door.methods:
            return _refuse(405, f"expected {' or '.join(self.door.methods)}")
        if self.is_ending:
            return _refuse(503, ABSENT)
        most = self.door.most_bytes
        try:
            if (request.content_length or 0) > most:
                raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, f"expected a body of at most {most:,} bytes")
        except aiohttp.ClientPayloadError:
            return _refuse(400, "expected a body as its headers describe it")
        if problem := _problem_of(body, request.headers.get(JSON_LENGTH)):
            return _refuse(400, problem)
        if request.method == "GET" and (page := self.door.pages.get(request.path)) is not None:
            content, told = await page()
            return web.Response(body=content, headers=told)
        here = self.door.answered_here.get(request.path)
        detour = self.door.detours.get(request.path)
        if here is None and detour is None:
            headers = [(name, v) for name, v in request.headers.items() if _is_asked_on(name, v)]
            return await self._hand_on(request.method, request.raw_path, body, headers)
        if request.method != "POST":
            return _refuse(405, "expected POST")
        if detour is not None:
            return await self._by_detour(detour, body)
        assert here is not None
        status, answer = await here(body)
        return web.json_response(answer, status=status)

    async def _by_detour(self, detour: Detour, body: bytes) -> web.Response:
        try:
            asked = detour.ask(body)
        except RequestError as error:
            return _refuse(400, str(error))
        found = await self._hand_on("POST", f"/v2/models/{detour.model}/infer", asked, ())
        if found.status != 200:
            return found
        assert isinstance(found.body, bytes)
        return web.Response(body=detour.tell(found.body), content_type="application/json")

    async def _hand_on(
        self, method: str, path: str, body: bytes, headers: Sequence[tuple[str, str]]
    ) -> web.Response:
        url = URL(f"http://triton{path}", encoded=True)
        try:
            async with self.session.request(
                method, url, data=body or None, headers=headers, allow_redirects=False
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError):
            return _refuse(503, ABSENT)
        if self.door.added is not None and response.status == 200:
            content += self.door.added().encode()
        kept = [
            (name, value)
            for name, value in response.headers.items()
            if name.lower() not in _OF_THE_CONNECTION
        ]
        if response.status == 400 and (problem := _too_large(content)) is not None:
            return _refuse(413, problem)
        is_unread = response.status == 500 and content.startswith(_UNREAD)
        status = 400 if is_unread else response.status
        return web.Response(status=status, body=content, headers=kept)


def _too_large(content: bytes) -> str | None:
    """Say why a request that Triton or a model refused is too large; None where it is not."""
    if (found := _BATCH_SIZE.search(content)) is not None:
        most, model = int(found[1]), found[2].decode("utf-8", "replace")
        return (
            f"expected at most {most:,} events in a request to {model!r}: split it, and send the "
            "parts one after the other"
        )
    begin, told, _ = content.partition(TOO_LARGE.encode())
    if not told or begin != b'{"error":"':
        return None
    return str(json.loads(content)["error"]).removeprefix(TOO_LARGE)


def _is_asked_on(name: str, value: str) -> bool:
    is_form = name.lower() == "content-type" and value.lower().startswith(_FORM)
    return name.lower() not in _NOT_ASKED_ON and not is_form


def _problem_of(body: bytes, json_length: str | None) -> str | None:
    """What is wrong with a body, as far as Triton could not bear it."""
    length = len(body)
    if json_length is not None:
        if not (json_length.isascii() and json_length.isdigit() and int(json_length) <= length):
            return f"{JSON_LENGTH}: expected 0 to {length}, received {json_length:.20}"
        length = int(json_length)
    text = body[:length]
    if is_deeper(text, DEEPEST):
        return f"expected JSON nested at most {DEEPEST} levels deep"
    try:
        if text:
            check_shapes(text)
    except RequestError as error:
        return str(error)
    return None


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
