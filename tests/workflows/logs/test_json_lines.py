from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.workflows.logs import text_lines
from merlin_sim.workflows.logs.text_lines import read_json_lines

SCHEMA = pa.schema([("user", pa.string()), ("time", pa.int64())])
VALUES = st.one_of(
    st.text(max_size=4), st.integers(), st.floats(), st.none(), st.booleans(), st.just([1])
)
LINES = st.one_of(
    st.fixed_dictionaries(
        {"user": st.one_of(st.text(max_size=4), VALUES), "time": st.one_of(st.integers(), VALUES)},
        optional={"more": VALUES},
    ).map(json.dumps),
    st.sampled_from(["", "  ", "{}", "nope", '{"user": "a"', '{"user": "a", "time": 1} x', "[]"]),
)


@settings(max_examples=300)
@given(lines=st.lists(LINES, max_size=5))
def test_both_readings_agree(lines):
    """Arrow may only be taken where a reading line by line would say the same."""
    text = "\n".join(lines).encode()
    table, bad = read_json_lines(text, SCHEMA)
    slow, slow_bad = text_lines._read_line_by_line(text, SCHEMA)
    assert table.to_pylist() == slow.to_pylist()
    assert bad == slow_bad


@pytest.mark.parametrize(
    "text",
    [
        b'{"user": "a", "time": 1}{"user": "b", "time": 2}\n\n',
        b'{"user": "a",\n "time": 1}\n',
        b'{"user": "a", "time": 1} {"user": "b", "time": 2}\n{"user": "c", "time": 3}\n',
        b'{"user": "a", "time": 1, "text": "\xff"}\n',
    ],
)
def test_what_arrow_would_read_otherwise_is_refused(text):
    assert read_json_lines(text, SCHEMA)[1]


def test_good_lines_are_read_by_arrow(monkeypatch):
    monkeypatch.setattr(text_lines, "_read_line_by_line", None)
    text = b'{"more": [1, {"x": 2}], "time": 5, "user": "\\u00e9"}\r\n{"user": "b", "time": -1}'
    table, bad = read_json_lines(text, SCHEMA)
    assert table.to_pylist() == [{"user": "é", "time": 5}, {"user": "b", "time": -1}]
    assert not bad
