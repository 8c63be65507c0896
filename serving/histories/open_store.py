"""Stores by where they are."""

from __future__ import annotations

from pathlib import Path

from .file_store import FileStore
from .redis_store import RedisStore, shown_address
from .store import HistoryStore, StoreError

REDIS = ("redis://", "rediss://", "unix://")


def whole_address(address: str) -> str:
    """Name a store for processes that work in other folders.

    >>> whole_address("/var/histories"), whole_address("redis://127.0.0.1")
    ('/var/histories', 'redis://127.0.0.1')
    """
    return address if address.startswith(REDIS) else str(Path(address).resolve())


def shown_store(address: str) -> str:
    """Name a store for people, without what opens it.

    >>> shown_store("redis://:secret@127.0.0.1:6379/0"), shown_store("/var/histories")
    ('redis://127.0.0.1:6379/0', '/var/histories')
    """
    return shown_address(address) if address.startswith(REDIS) else address


def open_store(
    address: str, *, keep: int | None = None, create: bool = False, later: bool = False
) -> HistoryStore:
    """Open a store.

    Args:
        address: The path of a file, or where a Redis server is: ``redis://host:6379/0``.
        keep: How many of a user's newest interactions are kept at least; older ones go. None
            keeps all. Settled when the store is made.
        create: Make it where it is missing.
        later: Ask a Redis server only when something is read: it may be away just now.

    Raises:
        StoreError: Where it is missing, or cannot be opened.
    """
    if keep is not None and keep < 1:
        raise StoreError(f"`keep` should be a positive number. Received: {keep}.")
    if address.startswith(REDIS):
        return RedisStore(address, keep, create, later)
    return FileStore(Path(address), keep, create)
