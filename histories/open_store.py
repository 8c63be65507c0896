"""Stores by where they are."""

from __future__ import annotations

from pathlib import Path

from .file_store import FileStore
from .redis_store import RedisStore
from .store import HistoryStore, StoreError

REDIS = ("redis://", "rediss://", "unix://")


def whole_address(address: str) -> str:
    """Name a store for processes that work in other folders.

    >>> whole_address("/var/histories"), whole_address("redis://127.0.0.1")
    ('/var/histories', 'redis://127.0.0.1')
    """
    return address if address.startswith(REDIS) else str(Path(address).resolve())


def open_store(address: str, *, keep: int | None = None, create: bool = False) -> HistoryStore:
    """Open a store.

    Args:
        address: The path of a file, or where a Redis server is: ``redis://host:6379/0``.
        keep: How many of a user's newest interactions are kept at least; older ones go. None
            keeps all. Settled when the store is made.
        create: Make it where it is missing.

    Raises:
        StoreError: Where it is missing, or cannot be opened.
    """
    if keep is not None and keep < 1:
        raise StoreError(f"`keep` should be a positive number. Received: {keep}.")
    if address.startswith(REDIS):
        return RedisStore(address, keep, create)
    return FileStore(Path(address), keep, create)
