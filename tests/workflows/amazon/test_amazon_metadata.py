from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.workflows.amazon import PLAIN, read_metadata_lines


def read(*lines: str | bytes):
    text = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    table, bad = read_metadata_lines(text)
    return [tuple(row.values()) for row in table.to_pylist()], [(b.line, b.reason) for b in bad]


def is_plain(line: str) -> bool:
    found = PLAIN.fullmatch(line)
    return found is not None and bool(found["item"] and found["category"])


def test_lines_that_are_not_plain_go_to_literal_eval_and_keep_their_place():
    lines = [
        "{'asin': 'a', 'categories': [['x']]}",
        "{'asin': u'b', 'categories': [['say \\'y\\'']], 'z': (1, 2)}  ",
        "",
        '{"asin": "c", "categories": [["\\u00e9"]], "description": "\\d"}',
        "{'asin': 'd', 'categories': [['é']]}",
    ]
    rows, bad = read(*lines)
    assert rows == [("a", "x"), ("b", "say 'y'"), ("c", "é"), ("d", "é")]
    assert not bad
    assert [is_plain(line) for line in lines] == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{'asin': 'a', 'categories': [['x']]", "expected a Python literal"),
        ("__import__('os').system('true')", "expected a Python literal"),
        ("[1]", "expected a dict"),
        ("\u00a0", "expected a"),
        ("{'asin': 'a'}", "expected the key 'categories'"),
        ("{'categories': [['x']]}", "expected the key 'asin'"),
        ("{'asin': 3, 'categories': [['x']]}", "'asin': expected a string"),
        ("{'asin': '', 'categories': [['x']]}", "'asin': expected a string, not empty"),
        ("{'asin': 'a', 'categories': [['x', 1]]}", "'categories': expected a list of paths"),
        (b"{'asin': 'a', 'categories': [['\xe9']]}", "expected UTF-8, found byte 0xe9 at 31"),
        ("[" * 200, "expected a Python literal"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(line, reason):
    good = "{'asin': 'a', 'categories': [['x']]}"
    rows, bad = read(good, line, good)
    assert rows == [("a", "x")] * 2
    assert len(bad) == 1
    assert bad[0][0] == 2
    assert reason in bad[0][1]


VALUES = st.recursive(
    st.one_of(
        st.text(max_size=6),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.none(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.tuples(inner),
    ),
    max_leaves=8,
)
LINES = st.fixed_dictionaries(
    {
        "asin": st.one_of(st.text(max_size=5), VALUES),
        "categories": st.one_of(st.lists(st.lists(st.text(max_size=5), max_size=3)), VALUES),
    },
    optional={"price": VALUES, "related": VALUES, "title": VALUES},
)


@pytest.mark.slow
@settings(max_examples=150)
@given(fields=LINES, cut=st.integers(0, 200), put=st.sampled_from(["", ",", "'", "]", "}", "0"]))
def test_what_the_scanner_accepts_literal_eval_reads_alike(fields, cut, put):
    whole = repr(fields).replace("\n", " ")
    for line in (whole, whole[:cut] + put + whole[cut + 1 :]):
        if any("\ud800" <= letter <= "\udfff" for letter in line) or not is_plain(line):
            continue
        parsed = ast.literal_eval(line)
        assert read(line) == ([(parsed["asin"], parsed["categories"][0][-1])], [])


def test_most_lines_of_a_real_file_are_plain():
    line = (
        "{'asin': '0001048791', 'salesRank': {'Books': 6334800}, 'imUrl': 'http://ecx.images-"
        "amazon.com/images/I/51MKP0T4DBL.jpg', 'categories': [['Books']], 'title': 'The Crucible: "
        "Performed by Stuart Pankin, Jerome Dempsey &amp; Cast', 'price': 12.99}"
    )
    assert is_plain(line)
    text = "'about': 'It\\'s \\x93new\\x94,\\nsays \\u0141.', 'related': {'bought': ['1', '2']}}"
    assert is_plain(f"{line[:-1]}, {text}")
    assert read(f"{line[:-1]}, {text}") == ([("0001048791", "Books")], [])
