"""The published FeatureSpec: read, checked with everything said at once, written stably."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attack.damage import ANY_NUMBER, BYTE_CHANGES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spec_strategies import feature_specs

from merlin_sim.foundation.exceptions import MerlinSimError, SpecError
from merlin_sim.schemas.feature_spec import Feature
from merlin_sim.schemas.spec_file import read_feature_spec, read_spec

SPECS = Path(__file__).parents[1] / "published"
NAMES = ("abstract_csv", "amazon_books")
RELAXED = settings(max_examples=50, suppress_health_check=list(HealthCheck))

SOUND = """\
feature_spec:
  label: {dtype: bool}
  age: {dtype: torch.int8, unit: years}
  item: {dtype: int64, cardinality: 7, dimensions: [4]}
source_spec:
  train:
  - {type: csv, features: [label, age], files: [a.csv, b.csv]}
  - {type: parquet, features: [item], files: [items.parquet]}
  test:
  - {type: csv, features: [label, age, item], files: [test.csv]}
channel_spec:
  label: [label]
  numbers: [age]
  items: [item]
metadata: {made_by: us}
"""


@pytest.fixture
def write(tmp_path):
    for name in ("a.csv", "b.csv", "items.parquet", "test.csv"):
        (tmp_path / name).touch()

    def write_spec(*changes):
        text = SOUND
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "feature_spec.yaml"
        file.write_text(text)
        return file

    return write_spec


def problems_of(file):
    with pytest.raises(SpecError) as caught:
        read_spec(file)
    return [str(problem).removeprefix(str(file)) for problem in caught.value.problems]


def test_a_sound_spec(write):
    spec = read_spec(write())
    assert spec.feature_spec["age"] == Feature("torch.int8", extra={"unit": "years"})
    assert spec.feature_spec["item"] == Feature("int64", 7, (4,))
    assert [chunk.files for chunk in spec.source_spec["train"]] == [
        ("a.csv", "b.csv"),
        ("items.parquet",),
    ]
    assert spec.metadata == {"made_by": "us"}


@pytest.mark.parametrize("name", NAMES)
def test_the_published_examples(name, tmp_path):
    spec = read_spec(SPECS / f"{name}.yaml", check_files=False)
    spec.write(tmp_path / "again.yaml")
    again = read_spec(tmp_path / "again.yaml", check_files=False)
    assert again == spec
    assert again.to_yaml() == (tmp_path / "again.yaml").read_text()
    with pytest.raises(MerlinSimError, match="cannot be written: No such file or directory"):
        spec.write(tmp_path / "missing" / "feature_spec.yaml")


@pytest.mark.slow
@RELAXED
@given(feature_specs())
def test_writing_and_reading_again_gives_the_same_bytes(tmp_path_factory, spec):
    file = tmp_path_factory.mktemp("spec") / "feature_spec.yaml"
    spec.write(file)
    reading = read_feature_spec(file)
    assert reading.problems == []
    assert reading.spec == spec
    reading.spec.write(file.with_name("again.yaml"))
    assert file.with_name("again.yaml").read_bytes() == file.read_bytes()


FAULTS = [
    ("label: [label]", "label: [lable]", "got the text 'lable' (did you mean 'label'?)"),
    ("[label, age], f", "[label, agee], f", ":7: source_spec.train[0].features[1]: expected a"),
    ("s: [item], f", "s: [item, age], f", "train[1].features[1]: expected each feature in one ch"),
    ("[label, age, item], f", "[label, item], f", "expected a chunk for every feature, got none"),
    ("  test:\n", "  valid:\n", ":5: source_spec.test: expected this mapping, got train, valid"),
    ("type: parquet", "type: orc", ":8: source_spec.train[1].type: expected one of the chunk"),
    ("b.csv", "c.csv", ":7: source_spec.train[0].files[1]: expected a file that exists, got the"),
    ("[items.parquet]", "[]", ":8: source_spec.train[1].files: expected a list of at least one"),
    ("items: [item]", "items: []", ":14: channel_spec.items: expected a list of at least one fea"),
    ("dtype: bool", "dtype: int99", ":2: feature_spec.label.dtype: expected a dtype such as int64"),
    ("ity: 7", "ity: true", "cardinality: expected a positive whole number, or auto, got the tru"),
    ("[4]", "[-4]", ":4: feature_spec.item.dimensions[0]: expected a positive whole number, got"),
    ("[4]", "[]", ":4: feature_spec.item.dimensions: expected a list of at least one length, got"),
    ("[test.csv]", "[/etc/passwd]", ":10: source_spec.test[0].files[0]: expected the path of a f"),
    ("[test.csv]", "[x/../../test.csv]", "within the dataset directory, got the text 'x/../../t"),
    ("by: us", "by: !!python/object/apply:os.getcwd []", ":15: metadata.made_by: expected plain d"),
    ("metadata: {made_by: us}", "more: {}", ":15: more: expected one of feature_spec, source_spec"),
]


@pytest.mark.parametrize(("old", "new", "expected"), FAULTS)
def test_each_fault_is_said_with_its_place(write, old, new, expected):
    assert expected in "\n".join(problems_of(write((old, new))))


def test_all_faults_are_said_at_once_with_those_of_the_models_channels(write):
    file = write(
        ("dtype: bool", "dtype: int99"),
        ("cardinality: 7", "cardinality: -1"),
        ("type: parquet", "type: orc"),
        ("numbers: [age]", "numbers: [agge]"),
        ("files: [test.csv]", "files: [gone.csv]"),
    )
    assert [problem.split(":")[1] for problem in problems_of(file)] == ["2", "4", "8", "10", "13"]
    with pytest.raises(SpecError) as caught:
        read_spec(file, model="dlrm")
    said = str(caught.value)
    assert "expected one of the chunk types" in said
    assert "channel_spec.categorical: expected at least 1 feature for dlrm" in said


def test_what_is_no_spec_is_refused(tmp_path):
    file = tmp_path / "feature_spec.yaml"
    file.write_text("channel_spec: {label: [label]}\nfeature_spec: {label: {dtype: bool}}\n")
    assert problems_of(file) == [":1: source_spec: expected this section, got nothing"]
    for text in ("[]", "3", "text", "null", "feature_spec: 3", "a: [", "\x00"):
        file.write_text(text)
        assert problems_of(file)


SIGNS = [b"&a ", b"*a", b"!!python/object:x ", b"<<: ", b"\n---\n", b"[", b"{", b"\t", b"? ", b"- "]
SIGNS += [b"\xff", b"\x00", b"\xc3\x28", b"'", b'"\\ud800"', b"%", b"0x", b": ", b"1e400", b"@"]


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(NAMES),
    st.lists(BYTE_CHANGES, max_size=5),
    st.lists(st.tuples(ANY_NUMBER, st.sampled_from(SIGNS)), max_size=3),
)
def test_whatever_bytes_come_only_a_spec_error_comes_back(tmp_path_factory, name, changes, signs):
    content = (SPECS / f"{name}.yaml").read_bytes()
    for change in changes:
        content = change.made(content)
    for number, sign in signs:
        index = number % (len(content) + 1)
        content = content[:index] + sign + content[index:]
    file = tmp_path_factory.getbasetemp() / "changed.yaml"
    file.write_bytes(content)
    try:
        read_spec(file, check_files=False)
    except SpecError as error:
        assert error.problems
        assert str(file) in str(error)


def test_a_fault_of_a_key_hides_nothing_beside_it(tmp_path):
    file = tmp_path / "feature_spec.yaml"
    file.write_text(
        "feature_spec: {label: {dtype: bool}}\n"
        "source_spec:\n"
        "  train: [{type: csv, features: [label, nope], files: [../x]}]\n"
        "  train: []\n"
        "  3: []\n"
        "channel_spec:\n"
        "  label: [label, nope]\n"
        "  4: x\n"
    )
    said = "\n".join(problems_of(file))
    for reported in (
        ":4: source_spec.train: expected each key once",
        ":3: source_spec.train[0].features[1]: expected a feature of feature_spec",
        ":3: source_spec.train[0].files[0]: expected the path of a file",
        ":5: source_spec.3: expected keys that are text",
        ":7: channel_spec.label[1]: expected a feature of feature_spec",
        ":8: channel_spec.4: expected keys that are text",
    ):
        assert reported in said


@pytest.mark.slow
def test_many_misspelt_names_are_answered_soon(tmp_path):
    file = tmp_path / "feature_spec.yaml"
    names = [f"feature_{number}" for number in range(1500)]
    features = "".join(f"  {name}: {{dtype: int8}}\n" for name in names)
    chunk = f"[{{type: csv, features: [{', '.join(name + 'x' for name in names)}], files: [a]}}]"
    file.write_text(f"feature_spec:\n{features}source_spec: {{train: {chunk}, test: {chunk}}}\n")
    with pytest.raises(SpecError) as caught:
        read_spec(file)
    assert len(caught.value.problems) > 3000
    assert str(caught.value).count("did you mean") <= 20
    assert "more" in str(caught.value).splitlines()[-1]


def test_a_feature_checks_itself():
    for key, wrong in (
        *(("dtype", "foo"), ("cardinality", 0), ("cardinality", "many"), ("dimensions", (3, -1))),
        *(("dimensions", ()), ("extra", {"dtype": "int64"})),
    ):
        with pytest.raises(MerlinSimError, match="A feature should have a known dtype"):
            Feature(**{"dtype": "int8", key: wrong})
    feature = Feature("int8", np.int64(5), [np.int32(3)])
    assert feature.to_dict() == {"dtype": "int8", "cardinality": 5, "dimensions": [3]}
