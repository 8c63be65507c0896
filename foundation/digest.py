"""The SHA-256 of a file, by which it is known again, and JSON files that hold their own.

The last entry of such a file is a digest of the lines above it, so that a later change shows.
A person can work it out too: ``head -n -2 FILE | sha256sum``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from .exceptions import MerlinSimError


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


DIGEST = "sha256_of_the_lines_above"


def with_own_digest(document: Mapping[str, Any]) -> str:
    """Give the text of a JSON file that holds a document, and the digest of its lines.

    >>> print(with_own_digest({"format": 1}), end="")
    {
      "format": 1,
      "sha256_of_the_lines_above": "..."
    }
    """
    return _closed(json.dumps(document, indent=2, ensure_ascii=False).removesuffix("\n}") + ",\n")


def require_own_digest(path: Path, error: type[MerlinSimError] = MerlinSimError) -> None:
    """Compare a file, known to be JSON, with the digest in it.

    Raises:
        MerlinSimError: Or ``error``, where a byte of it is not as it was written.
    """
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    above, found, _ = text.rpartition(f'  "{DIGEST}": ')
    if not found:
        raise error(f"{path}: expected its digest, {DIGEST}, as the last entry. It has none.")
    if text != _closed(above):
        raise error(
            f"{path}: not as it was written: its lines do not have the digest in its last entry, "
            f"{DIGEST}."
        )


def _closed(above: str) -> str:
    digest = hashlib.sha256(above.encode("utf-8", "surrogateescape")).hexdigest()
    return f'{above}  "{DIGEST}": "{digest}"\n}}\n'
