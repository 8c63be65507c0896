"""The SHA-256 of a file, by which it is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import IO


def sha256(path: Path) -> str:
    """Return a file's digest in hexadecimal digits."""
    with open(path, "rb") as file:
        return digest_of(file)


def digest_of(file: IO[bytes], report: Callable[[], None] = lambda: None) -> str:
    """Return the digest of an open file, from its first byte to its last.

    Args:
        file: the file.
        report: called with each piece that is read.
    """
    digest = hashlib.sha256()
    file.seek(0)
    while piece := file.read(1 << 20):
        digest.update(piece)
        report()
    return digest.hexdigest()
