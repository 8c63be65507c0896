"""The Triton that answers just now, as a front uses it; requests wait while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import grpc.aio

from .replica import Replica
from .triton_process import GRPC_SOCKET, HTTP, METRICS

Answer = TypeVar("Answer")
IDLE_SECONDS = 1.0
"""How long a connection to Triton is kept for the next request."""
MOST_DEATHS = 3
"""Tritons that may end over a request that they have in hand before it is refused."""
PAUSE_SECONDS = 0.05
GRPC_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)
_ADDED_UNASKED = ("Accept-Encoding", "Content-Type", "User-Agent")


class EndingError(Exception):
    """Nothing new is answered, as the server ends."""


class DeadlyError(Exception):
    """A request over which one Triton after the other ended."""


class Upstream:
    """One Triton, and the connections to it."""

    def __init__(self, replica: Replica) -> None:
        """Connect to nothing yet."""
        self.replica = replica
        self.in_hand = 0
        self.http, self.metrics = (_session(replica.folder / name) for name in (HTTP, METRICS))
        address = f"unix:{replica.folder / GRPC_SOCKET}"
        self.grpc = grpc.aio.insecure_channel(address, options=GRPC_OPTIONS)

    async def close(self) -> None:
        """Close the connections once nothing is in hand."""
        while self.in_hand:
            await asyncio.sleep(PAUSE_SECONDS)
        await self.http.close()
        await self.metrics.close()
        await self.grpc.close()


def _session(path: Path) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(path), limit=0, keepalive_timeout=IDLE_SECONDS),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        skip_auto_headers=_ADDED_UNASKED,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class Upstreams:
    """Has requests answered by the Triton that answers just now.

    A request that was lost with its Triton is sent again to the next: what is asked here changes
    nothing, so it may be asked twice.
    """

    def __init__(self) -> None:
        """Begin with none; in the loop that asks."""
        self.active: Upstream | None = None
        """The one that answers; None while it is replaced."""
        self._changed = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self.is_ending = False

    def switch(self, replica: Replica | None) -> None:
        """Have another one answer from now on."""
        last, self.active = self.active, None if replica is None else Upstream(replica)
        self._notify()
        if last is not None:
            task = asyncio.get_running_loop().create_task(last.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def refuse_new(self) -> None:
        """Let those go that wait."""
        self.is_ending = True
        self._notify()

    async def close(self) -> None:
        """Close all connections."""
        self.refuse_new()
        self.switch(None)
        await asyncio.gather(*self._closing)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self) -> Upstream:
        while self.active is None:
            if self.is_ending:
                raise EndingError("the server ends")
            await self._changed.wait()
        return self.active

    async def ask(self, send: Callable[[Upstream], Awaitable[Answer | None]]) -> Answer:
        """Have a request answered; ``send`` sends it, and gives None where it was lost."""
        deaths = 0
        while True:
            upstream = await self._wait()
            upstream.in_hand += 1
            try:
                found = await send(upstream)
            finally:
                upstream.in_hand -= 1
            if found is not None:
                upstream.replica.has_answered = True
                return found
            upstream.replica.suspect()
            changed = self._changed
            if self.active is upstream:
                # It may only have closed a connection, or not have been found out yet.
                try:
                    await asyncio.wait_for(changed.wait(), PAUSE_SECONDS)
                except asyncio.TimeoutError:
                    continue
            deaths += 1
            if deaths == MOST_DEATHS:
                raise DeadlyError("Triton ended again and again over this request")
