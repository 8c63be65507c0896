"""JSON files whose last entry is a digest of the lines above it, so that a later change shows.

A person can work it out too: ``head -n -2 FILE | sha256sum``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .exceptions import MerlinSimError

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
