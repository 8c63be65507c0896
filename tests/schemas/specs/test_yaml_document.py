"""YAML as plain data: lines, duplicates, and no way to make it do anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from merlin_sim.schemas import yaml_document
from merlin_sim.schemas.yaml_document import DEEPEST_NESTING, read_yaml


def read(tmp_path, text):
    file = tmp_path / "spec.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    root, problems = read_yaml(file)
    return (None if root is None else root.plain()), [str(p).split(": ", 1)[1] for p in problems]


def test_values_anchors_and_merges(tmp_path):
    plain, problems = read(
        tmp_path, "a: &x [1, two, 3.5, yes, ~]\nb: *x\nc: {<<: {d: 1, e: 2}, d: 3}\n"
    )
    assert problems == []
    assert plain == {
        "a": [1, "two", 3.5, True, None],
        "b": [1, "two", 3.5, True, None],
        "c": {"d": 3, "e": 2},
    }
    assert read(tmp_path, '"<<": 1\n') == ({"<<": 1}, [])
    assert read(tmp_path, "day: 2014-07-23\n") == ({"day": "2014-07-23"}, [])


def test_every_value_knows_its_line(tmp_path):
    file = tmp_path / "spec.yaml"
    file.write_text("a:\n  b:\n  - one\n  - two\nc: &x\n- three\nd: *x\n")
    root, _ = read_yaml(file)
    assert root.line_of(("a", "b", 1)) == 4
    assert root.line_of(("d", 0)) == 6
    assert root.line_of(("a", "missing")) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a YAML mapping, got an empty file"),
        ("a: 1\na: 2\n", "a: expected each key once, got it again (line 1)"),
        ("a: 1\n---\nb: 2\n", "expected one YAML document, got a second one"),
        ("a: &a [*a]", "expected an alias of something complete above it, got *a"),
        ("a: *b", "expected an alias of something complete above it, got *b"),
        ("yes: 1", "True: expected keys that are text (quote them), got the key True"),
        ("[a]: 1", "expected keys that are text (quote them), got a list or mapping as key"),
        ("a: 0b_", "a: expected a YAML int, got '0b_'"),
        ("a: [1", "expected YAML, got something else: did not find expected ',' or ']'"),
        ("a: " + "9" * 3000, "a: expected a number of at most 2,000 characters, got a longer one"),
        ("<<: 3", "<<: expected a mapping to merge, got something else"),
        (b"\xff\xfe\x00", "expected UTF-8 text, got other bytes at position 0"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, problem):
    assert problem in read(tmp_path, text)[1]


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system [echo]", "!!binary aGk="])
def test_no_tag_makes_an_object(tmp_path, tag):
    plain, problems = read(tmp_path, f"a: {tag}\nb: 1\n")
    assert "a tag that asks for an object" in problems[0]
    assert plain["b"] == 1


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? "])
def test_deep_nesting_is_refused_not_suffered(tmp_path, opening):
    plain, problems = read(tmp_path, opening * 50_000)
    assert plain is None
    assert f"nesting of at most {DEEPEST_NESTING} levels" in problems[0]


def test_aliases_and_merges_cannot_blow_up(tmp_path, monkeypatch):
    monkeypatch.setattr(yaml_document, "MOST_VALUES", 10_000)
    wide = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 12)
    )
    assert "aliases that make more" in read(tmp_path, wide)[1][0]
    deep = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 5000))
    assert "nesting of at most" in read(tmp_path, deep)[1][0]
    keys = ", ".join(f"k{number}: 1" for number in range(100))
    merged = f"a: &a {{{keys}}}\nb:\n" + "- <<: *a\n" * 300
    assert "merges that make more" in read(tmp_path, merged)[1][0]


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path, Path("/dev/zero")):
        root, problems = read_yaml(path)
        assert root is None
        assert "expected a readable file, got a directory or device" in str(problems[0])
