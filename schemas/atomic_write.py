"""Small files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .exceptions import MerlinSimError


def write_text_atomically(path: Path, text: str) -> None:
    """Write ``text`` to ``path``: beside it first, then renamed into place.

    Raises:
        MerlinSimError: Where the file cannot be written; what stood there before still stands.
    """
    try:
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise MerlinSimError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, path)
    except OSError as error:
        Path(partial).unlink(missing_ok=True)
        raise MerlinSimError(f"{path}: cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
