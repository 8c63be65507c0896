"""Lines of text in blocks, and JSON lines read fast and line by line."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows import text_lines
from merlin_sim.workflows.text_lines import find_text_file, line_blocks, read_json_lines

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


@pytest.mark.slow
@settings(max_examples=300)
@given(lines=st.lists(LINES, max_size=5))
def test_both_readings_agree(lines):
    """Arrow may only be taken where a reading line by line would say the same."""
    text = "\n".join(lines).encode()
    table, bad = read_json_lines(text, SCHEMA)
    slow, (*slow_bad, _) = read_json_lines(text + b"\nno JSON", SCHEMA)
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
    monkeypatch.setattr("json.loads", None)
    text = b'{"more": [1, {"x": 2}], "time": 5, "user": "\\u00e9"}\r\n{"user": "b", "time": -1}'
    table, bad = read_json_lines(text, SCHEMA)
    assert table.to_pylist() == [{"user": "é", "time": 5}, {"user": "b", "time": -1}]
    assert not bad


@settings(max_examples=100)
@given(
    lines=st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b".")), max_size=9),
    last_newline=st.booleans(),
    block_bytes=st.integers(1, 40),
)
def test_blocks_are_whole_lines_and_together_the_file(
    tmp_path_factory, lines, last_newline, block_bytes
):
    text = b"\n".join(lines) + b"\n" * last_newline
    path = tmp_path_factory.mktemp("text") / "file"
    path.write_bytes(text)
    blocks = line_blocks(path, block_bytes)
    pieces = [piece for block in blocks for piece, _ in block.texts()]
    assert b"".join(pieces) == text
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
    before = 0
    for block, piece in zip(blocks, pieces, strict=True):
        assert block.lines_before() == before
        before += piece.count(b"\n")


def test_a_stream_comes_in_pieces_of_whole_lines(tmp_path, monkeypatch):
    def pieces_of(text):
        (tmp_path / "file.gz").write_bytes(gzip.compress(text))
        (block,) = line_blocks(tmp_path / "file.gz")
        found = list(block.texts())
        done = [position for _, position in found]
        assert done == sorted(done) and done[-1] == block.size
        return [piece for piece, _ in found]

    assert pieces_of(b"one\ntwo") == [b"one\ntwo"]
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 10)
    text = b"".join(b"line %d\n" % number for number in range(50)) + b"last"
    pieces = pieces_of(text)
    assert len(pieces) > 20
    assert b"".join(pieces) == text
    assert all(piece.endswith(b"\n") for piece in pieces[:-1])
    long = b"a" * 35 + b"\n"  # longer than what is read at once
    assert pieces_of(b"b\n" + long + long + b"c" * 25) == [b"b\n" + long, long, b"c" * 25]


def test_a_file_or_its_packed_form_is_found(tmp_path):
    with pytest.raises(MerlinSimError, match="a.json: no such file, nor .*a.json.gz"):
        find_text_file(tmp_path, "a.json")
    (tmp_path / "a.json.gz").touch()
    assert find_text_file(tmp_path, "a.json").name == "a.json.gz"
    (tmp_path / "a.json").touch()
    assert find_text_file(tmp_path, "a.json").name == "a.json"
