"""The shapes that a JSON request claims for its data, compared with how much data it can have."""

from __future__ import annotations

import json
import math
from typing import Any

from ..limits import RequestError


def check_shapes(text: bytes) -> None:
    """Refuse data that claims more elements than its request has bytes.

    Triton sets memory aside for the shape before it looks at the data. No depth is checked.

    Raises:
        RequestError: Naming the shape; or saying why the text is no JSON.
    """

    def check(pairs: list[tuple[str, Any]]) -> None:
        # Of a key that stands twice one parser takes the first and another the last.
        if any(key == "data" for key, _ in pairs):
            for shape in (value for key, value in pairs if key == "shape"):
                _check_shape(shape, len(text))

    try:
        # Bytes are let through as they are: here only keys and numbers matter.
        json.loads(text.decode("latin-1"), object_pairs_hook=check, strict=False)
    except json.JSONDecodeError as error:
        raise RequestError(
            f"expected one JSON object: {error.msg}, at character {error.pos + 1}"
        ) from None
    except RequestError:
        raise
    except ValueError as error:
        raise RequestError(f"expected one JSON object: {error}") from None


def _check_shape(shape: Any, most: int) -> None:
    if not isinstance(shape, list) or not all(isinstance(length, int) for length in shape):
        return  # Triton says what is wrong with it
    # Each length counts, so that none is hidden by another that is 0.
    if math.prod(max(abs(length), 1) for length in shape) > most:
        raise RequestError(f"shape: expected as many elements as data has, received {shape!s:.60}")
