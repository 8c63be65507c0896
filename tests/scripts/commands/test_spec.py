"""``merlin-sim data spec`` as a person uses it: exit codes and what it prints.

Some of it of the program in a process of its own, the rest of the same entry in this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import in_process
import published_layout
import pytest

from merlin_sim.schemas.schema_file import read_schema
from merlin_sim.schemas.spec_file import read_spec

SPECS = Path(__file__).parents[2] / "schemas" / "published"
PROGRAM = Path(sys.executable).with_name("merlin-sim")


def merlin_sim(*arguments, code=0, start=in_process.answer):
    result = start(*arguments)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout if code == 0 else result.stderr


def program(*arguments):
    """The program itself."""
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=280
    )


@pytest.fixture
def amazon(tmp_path):
    for name in ("train.tfrecord", "test.tfrecord"):
        (tmp_path / name).touch()
    file = tmp_path / "feature_spec.yaml"
    file.write_bytes((SPECS / "amazon_books.yaml").read_bytes())
    return file


@pytest.mark.parametrize(
    "start",
    [in_process.answer, pytest.param(program, marks=pytest.mark.slow)],
    ids=["here", "program"],
)
def test_validate(amazon, start):
    assert "valid: 8 features" in merlin_sim("data", "spec", "validate", amazon, start=start)
    assert "fits sim" in merlin_sim(
        "data", "spec", "validate", amazon.parent, "--model_type", "sim"
    )
    refusal = merlin_sim(
        "data", "spec", "validate", amazon, "--model_type", "dlrm", code=2, start=start
    )
    assert "channel_spec.categorical: expected at least 1 feature for dlrm" in refusal
    (amazon.parent / "test.tfrecord").unlink()
    assert "expected a file that exists" in merlin_sim("data", "spec", "validate", amazon, code=2)
    merlin_sim("data", "spec", "validate", amazon, "--skip_files")


@pytest.mark.slow
def test_wrong_input_is_answered(tmp_path):
    for words, said in (
        (("validate", tmp_path / "none.yaml"), "No such file"),
        (("show", tmp_path / ("x" * 300)), "File name too long"),
        (("validate", tmp_path), "found neither"),
        (("convert", "a.yaml", "b.json"), "ends in .yaml or .pbtxt"),
    ):
        assert said in merlin_sim("data", "spec", *words, code=2)
    assert "No such command" in merlin_sim("speck", code=2)


@pytest.mark.slow
def test_a_spec_is_shown_with_odd_names_as_they_are(amazon, tmp_path):
    shown = merlin_sim("data", "spec", "show", amazon)
    for text in ("positive_history", "item_id_neg", "1,209,081", "tfrecord", "100"):
        assert text in shown
    file = tmp_path / "spec.yaml"
    file.write_text(
        "feature_spec: {'a[bold]b': {dtype: int8}, 'ué': {dtype: int8}}\n"
        "source_spec: {train: [{type: csv, features: [x], files: ['[/q]']}]}\n"
        "channel_spec: {'[/q]': ['a[bold]b', '[red]']}\n"
    )
    shown = merlin_sim("data", "spec", "show", file)
    for name in ("a[bold]b", "[/q]", "[red]"):
        assert name in shown
    result = subprocess.run(
        [PROGRAM, "data", "spec", "show", str(file)],
        capture_output=True,
        timeout=280,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert result.returncode == 0, result.stderr
    assert b"u\\xe9" in result.stdout


@pytest.mark.slow
def test_specs_are_converted_there_and_back_and_a_schema_is_checked_as_its_spec_is(
    amazon, tmp_path
):
    schema, again = tmp_path / "s.pbtxt", tmp_path / "again.yaml"
    merlin_sim("data", "spec", "convert", amazon, schema)
    assert read_schema(schema).column_names[0] == "label"
    merlin_sim("data", "spec", "convert", schema, again)
    assert read_spec(again, check_files=False) == read_spec(amazon)
    merlin_sim("data", "spec", "convert", again, tmp_path / "copy.yaml")
    assert (tmp_path / "copy.yaml").read_bytes() == again.read_bytes()
    merlin_sim("data", "spec", "show", schema)
    merlin_sim("data", "spec", "validate", schema, "--skip_files")


@pytest.mark.slow
def test_adopt(tmp_path):
    directory = published_layout.write(tmp_path / "data")
    out = merlin_sim("data", "spec", "adopt", directory, "--number_of_user_features", 1)
    assert "adopted: 8 columns, histories of up to 6" in out
    assert "fits sim" in merlin_sim("data", "spec", "validate", directory, "--model_type", "sim")
    assert "has a spec already" in merlin_sim(
        "data", "spec", "adopt", directory, "--number_of_user_features", 1, code=2
    )
