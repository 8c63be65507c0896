"""Callbacks and metrics of one's own, by name: ``package.module:NAME``."""

from __future__ import annotations

import importlib
from typing import Any

from ...foundation.exceptions import MerlinSimError


def named_objects(names: str | None) -> list[Any]:
    """Import what is named, several names by commas; what can be called is called for one.

    >>> [type(metric).__name__ for metric in named_objects("tensorflow.keras.metrics:Precision")]
    ['Precision']

    Raises:
        MerlinSimError: Naming what cannot be found.
    """
    return [_named_object(name.strip()) for name in (names or "").split(",") if name.strip()]


def _named_object(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise MerlinSimError(f"expected package.module:NAME. Received: {name}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MerlinSimError(f"{name} cannot be found: {error}") from error
    return found() if callable(found) else found
