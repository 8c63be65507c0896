"""How deep a JSON text is nested, told without parsing it: parsers that recurse have a limit."""

from __future__ import annotations

import re

import numpy as np

# A string runs to its closing quote or to the end of the text, so that nothing is read twice.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_OTHERS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(_OPENING)], _STEPS[list(_CLOSING)] = 1, -1


def is_deeper(text: bytes, depth: int) -> bool:
    """Whether lists and objects are nested deeper than ``depth`` anywhere in a JSON text.

    Where the text is not JSON, the answer is about the part before its first mistake.

    >>> is_deeper(b'{"a": [[1], ["[[["]]}', 3), is_deeper(b'{"a": [[1], ["[[["]]}', 2)
    (False, True)
    """
    if text.count(b"[") + text.count(b"{") <= depth:
        return False
    brackets = _STRING.sub(b"", text).translate(None, delete=_OTHERS)
    steps = _STEPS[np.frombuffer(brackets, np.uint8)]
    return bool(np.cumsum(steps, dtype=np.int64).max(initial=0) > depth)
