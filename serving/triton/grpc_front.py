"""The front before Triton's gRPC: what is allowed is handed on as it is, bytes for bytes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from ..limits import NOT_NOW, TOO_LARGE
from ..workers.protocol import FAULT
from .admission import Access, Admission, TooMuchError
from .replica import is_broken
from .upstreams import GRPC_OPTIONS, DeadlyError, EndingError, Upstream, Upstreams

SERVICE = "/inference.GRPCInferenceService/"
ASKED_OF_TRITON = ("ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer")
ABOUT_THE_SERVER = ("ServerLive", "ServerReady")
"""Not held while Triton is replaced."""
RETRY_AFTER = (("retry-pushback-ms", "1000"),)
_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


@dataclass(eq=False)
class GrpcFront(grpc.GenericRpcHandler):
    """Answers gRPC as long as it runs."""

    upstreams: Upstreams
    access: Access
    admission: Admission
    seconds: float
    most_bytes: int
    """Of a request."""
    _server: grpc.aio.Server | None = field(init=False, default=None)

    async def start(self, address: str, tls: tuple[Path, Path] | None) -> None:
        """Listen."""
        options = [
            *GRPC_OPTIONS[1:], ("grpc.max_receive_message_length", self.most_bytes),
            ("grpc.so_reuseport", 0),
        ]  # fmt: skip
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((self,))
        try:
            if tls is None:
                self._server.add_insecure_port(address)
            else:
                certificate, key = (path.read_bytes() for path in tls)
                credentials = grpc.ssl_server_credentials([(key, certificate)])
                self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address} for gRPC: {error}") from error
        await self._server.start()

    async def close(self) -> None:
        """Answer what is in hand, then close."""
        if self._server is not None:
            await self._server.stop(5.0)

    def service(self, details: Any) -> Any:
        """See grpc: return what answers a call; bytes in, bytes out."""
        method = str(details.method)
        name = method.removeprefix(SERVICE) if method.startswith(SERVICE) else ""
        is_health = method == "/grpc.health.v1.Health/Check"

        async def answer(request: bytes, context: Any) -> bytes:
            if is_health or name in ABOUT_THE_SERVER:
                return await self._about_the_server(method, request, context)
            await self._check(context)
            if name in ASKED_OF_TRITON:
                return await self._ask(method, request, context)
            code = grpc.StatusCode.PERMISSION_DENIED
            return await _abort(
                context, code, f"{method} is not allowed: no client manages the server"
            )

        return grpc.unary_unary_rpc_method_handler(answer, None, None)

    async def _check(self, context: Any) -> None:
        given = dict(context.invocation_metadata())
        if not self.access.allows(given.get("authorization")):
            code = grpc.StatusCode.UNAUTHENTICATED
            await _abort(context, code, "expected metadata `authorization: Bearer TOKEN`")

    async def _about_the_server(self, method: str, request: bytes, context: Any) -> bytes:
        upstream = self.upstreams.active
        if upstream is not None and not self.upstreams.is_ending:
            try:
                found: bytes = await upstream.grpc.unary_unary(method)(request, timeout=5.0)
                return found
            except grpc.aio.AioRpcError:
                pass
        return await _abort(context, grpc.StatusCode.UNAVAILABLE, "the server is not ready")

    async def _ask(self, method: str, request: bytes, context: Any) -> bytes:
        left = context.time_remaining()
        seconds = self.seconds if left is None else min(left, self.seconds)

        async def send(upstream: Upstream) -> bytes | grpc.aio.AioRpcError | None:
            try:
                found: bytes = await upstream.grpc.unary_unary(method)(request)
                return found
            except grpc.aio.AioRpcError as error:
                return None if _is_lost(error) else error

        found: Any
        try:
            if self.upstreams.is_ending:
                raise EndingError("the server ends")
            with self.admission.enter(len(request)):
                found = await asyncio.wait_for(self.upstreams.ask(send), seconds)
        except TooMuchError as error:
            return await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except (EndingError, DeadlyError) as error:
            return await _abort(context, grpc.StatusCode.UNAVAILABLE, str(error))
        except asyncio.TimeoutError:
            message = f"no answer within {seconds:g} s"
            return await _abort(context, grpc.StatusCode.UNAVAILABLE, message)
        if isinstance(found, bytes):
            return found
        code, message = found.code(), found.details() or ""
        if code in _FAULTS and message != FAULT:
            print(f"merlin-sim: gRPC: {message}", file=sys.stderr, flush=True)
            message = FAULT
        return await _abort(context, code, message.removeprefix(NOT_NOW).removeprefix(TOO_LARGE))


def _is_lost(error: Any) -> bool:
    """Return whether a connection broke or a model's process has gone, which is no answer."""
    message = error.details() or ""
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return not message.startswith(NOT_NOW)
    if error.code() == grpc.StatusCode.CANCELLED:
        return True
    return error.code() in _FAULTS and is_broken(message.encode())


async def _abort(context: Any, code: grpc.StatusCode, message: str) -> bytes:
    is_later = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
    trailing: Sequence[tuple[str, str]] = RETRY_AFTER if is_later else ()
    await context.abort(code, message, trailing_metadata=trailing)
    raise AssertionError("abort raises")
