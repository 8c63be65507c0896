"""JSON files that describe something, read with errors that people can act on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .exceptions import MerlinSimError


def read_json(path: Path, expected: str, error: type[MerlinSimError] = MerlinSimError) -> Any:
    """Read a JSON file.

    >>> read_json(Path("none/manifest.json"), "a servable's manifest, as JSON")
    Traceback (most recent call last):
    ...
    merlin_sim.foundation.exceptions.MerlinSimError: none/manifest.json: cannot be read: No such ...

    Args:
        path: The file.
        expected: What it should be, for messages.
        error: What is raised.

    Raises:
        MerlinSimError: Or ``error``, where the file cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(
            f"{path}: cannot be read: {problem.strerror}. Expected {expected}."
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: expected {expected}: {' '.join(str(problem).split())}") from problem
