"""The address at which the first rank listens to the other ranks alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import psutil

from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from .collectives import gather_objects

LOOPBACK = "127.0.0.1"
INTERFACE = "HOROVOD_GLOO_IFACE"
RENDEZVOUS = "HOROVOD_GLOO_RENDEZVOUS_ADDR"


def first_rank_address(ranks: Ranks, environ: Mapping[str, str] = os.environ) -> str:
    """Return this machine's address on the network that the ranks use; all ranks must ask.

    Where all ranks are on one machine, that is the loopback; else the interface that Horovod was
    given; else the one from which the launcher, or a rank on another machine, is reached.
    """
    if ranks.local_size == ranks.size:
        return LOOPBACK
    if environ.get(INTERFACE):
        return _interface_address(environ[INTERFACE].split(",")[0])
    if environ.get(RENDEZVOUS):
        return _address_towards(environ[RENDEZVOUS])
    own = socket.gethostname()
    others = [host for host in gather_objects(own, ranks) if host != own]
    return _address_towards(others[0] if others else own)


def _interface_address(name: str) -> str:
    for entry in psutil.net_if_addrs().get(name, []):
        if entry.family == socket.AF_INET:
            return str(entry.address)
    raise MerlinSimError(f"{INTERFACE} names {name}, an interface without an IPv4 address here.")


def _address_towards(host: str) -> str:
    """Ask the system from which of its addresses it reaches ``host``; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError as error:
        raise MerlinSimError(f"there is no way from this machine to {host}: {error}") from error
