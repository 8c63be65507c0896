"""The depth of JSON, compared with a parser's."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.serving.triton.admission import is_deeper

LEAVES = st.none() | st.integers() | st.text(alphabet='[]{}"\\a ', max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text('[{"\\', max_size=3), inner)
)


def depth_of(value) -> int:
    if not isinstance(value, list | dict):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, parts), default=0)


@pytest.mark.slow
@given(VALUES)
def test_the_depth_is_that_of_the_value(value):
    text, depth = json.dumps(value).encode(), depth_of(value)
    assert not is_deeper(text, depth)
    assert depth == 0 or is_deeper(text, depth - 1)


@pytest.mark.parametrize(
    "text", [b"[" * 65, b'["' + b'\\"' * 300_000 + b"[" * 65, b'{"a":' * 65, b"\\" + b"[" * 65]
)
def test_what_is_cut_short_has_a_depth_too(text):
    assert is_deeper(text, 64) == (b'"\\"' not in text)
