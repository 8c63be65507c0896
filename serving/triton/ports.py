"""Ports of this machine: finds free ones, and refuses taken ones before anything is started."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack

from .bundled_server import ServerError
from .server_options import ServerOptions


def settle_ports(options: ServerOptions) -> list[int]:
    """The ports, with free ones where 0 was given; one that is taken is refused now."""
    with ExitStack() as stack:
        held = [
            stack.enter_context(listen(options.host_of(name), name, port))
            for name, port in options.ports.items()
        ]
        ports = [int(found.getsockname()[1]) for found in held]
    return ports


def listen(host: str, name: str, port: int) -> socket.socket:
    """A socket on a port of this machine."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ServerError(_cannot_listen(host, name, port, error)) from error
    return found


def _cannot_listen(host: str, name: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"`{name}` = {port}: another process listens on {host}:{port}. Name another port, "
            "or 0 for a free one."
        )
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return (
            f"`{'grpc_host' if name == 'grpc_port' else 'host'}` should be an address of this "
            f"machine. Received: {host}."
        )
    return f"`{name}` = {port}: cannot listen on {host}:{port}: {error.strerror}."
