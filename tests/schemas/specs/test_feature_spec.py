"""The published FeatureSpec: read, checked with everything said at once, written stably."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from spec_strategies import feature_specs

from merlin_sim.foundation.exceptions import MerlinSimError, SpecError
from merlin_sim.schemas.dtypes import canonical_dtype
from merlin_sim.schemas.feature_spec import Feature
from merlin_sim.schemas.spec_file import read_feature_spec, read_spec, spec_from_plain

SPECS = Path(__file__).parents[1] / "published"
NAMES = ("abstract_csv", "amazon_books")
RELAXED = settings(max_examples=80, suppress_health_check=list(HealthCheck))

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


def test_the_abstract_example_in_detail():
    spec = read_spec(SPECS / "abstract_csv.yaml", check_files=False)
    assert spec.feature_spec["user_gender"] == Feature("torch.int8", 3)
    by_columns = spec.source_spec["train"]
    assert [chunk.features for chunk in by_columns] == [
        ("user_gender", "user_age"),
        ("user_id", "item_id", "label"),
    ]
    assert by_columns[0].files == ("train_data_0_0.csv", "train_data_0_1.csv")
    assert spec.channel_spec["categorical_user_inputs"] == ("user_gender", "user_id")


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


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("label: [label]", "label: [lable]"),
            ":12: channel_spec.label[0]: expected a feature of feature_spec, "
            "got the text 'lable' (did you mean 'label'?)",
        ),
        (
            ("[label, age], files", "[label, agee], files"),
            ":7: source_spec.train[0].features[1]: expected a feature of feature_spec, "
            "got the text 'agee' (did you mean 'age'?)",
        ),
        (
            ("features: [item]", "features: [item, age]"),
            ":8: source_spec.train[1].features[1]: expected each feature in one chunk, "
            "got 'age' again (it is in chunk 0 too)",
        ),
        (
            ("[label, age, item], files", "[label, item], files"),
            ":9: source_spec.test: expected a chunk for every feature, got none with age",
        ),
        (
            ("  test:\n", "  valid:\n"),
            ":5: source_spec.test: expected this mapping, got train, valid",
        ),
        (
            ("type: parquet", "type: orc"),
            ":8: source_spec.train[1].type: expected one of the chunk types parquet, csv, "
            "tfrecord, split_binary, users, got the text 'orc'",
        ),
        (
            ("b.csv", "c.csv"),
            ":7: source_spec.train[0].files[1]: expected a file that exists, got the text 'c.csv'",
        ),
        (
            ("[items.parquet]", "[]"),
            ":8: source_spec.train[1].files: expected a list of at least one name, "
            "got an empty list",
        ),
        (
            ("items: [item]", "items: []"),
            ":14: channel_spec.items: expected a list of at least one feature, got an empty list",
        ),
        (
            ("dtype: bool", "dtype: int99"),
            ":2: feature_spec.label.dtype: expected a dtype such as int64, float32, bool or "
            "torch.int8, got the text 'int99'",
        ),
        (
            ("cardinality: 7", "cardinality: 0"),
            ":4: feature_spec.item.cardinality: expected a positive whole number, or auto, "
            "got the number 0",
        ),
        (
            ("cardinality: 7", "cardinality: true"),
            ":4: feature_spec.item.cardinality: expected a positive whole number, or auto, "
            "got the truth value true",
        ),
        (
            ("dimensions: [4]", "dimensions: [-4]"),
            ":4: feature_spec.item.dimensions[0]: expected a positive whole number, "
            "got the number -4",
        ),
        (
            ("dimensions: [4]", "dimensions: []"),
            ":4: feature_spec.item.dimensions: expected a list of at least one length, "
            "got an empty list",
        ),
        (
            ("  age: {", "  label: {dtype: bool}\n  age: {"),
            ":3: feature_spec.label: expected each key once, got it again (line 2)",
        ),
        (
            ("files: [test.csv]", "files: [../test.csv]"),
            ":10: source_spec.test[0].files[0]: expected the path of a file within the "
            "dataset directory, got the text '../test.csv'",
        ),
        (
            ("files: [test.csv]", "files: [/etc/passwd]"),
            ":10: source_spec.test[0].files[0]: expected the path of a file within the "
            "dataset directory, got the text '/etc/passwd'",
        ),
        (
            ("files: [test.csv]", "files: [x/../../test.csv]"),
            ":10: source_spec.test[0].files[0]: expected the path of a file within the "
            "dataset directory, got the text 'x/../../test.csv'",
        ),
        (
            ("made_by: us", "made_by: !!python/object/apply:os.getcwd []"),
            ":15: metadata.made_by: expected plain data, got a tag that asks for an object, "
            "'tag:yaml.org,2002:python/object/apply:os.getcwd'",
        ),
        (
            ("metadata: {made_by: us}", "extra_section: {}"),
            ":15: extra_section: expected one of feature_spec, source_spec, channel_spec, "
            "metadata, got the text 'extra_section'",
        ),
        (
            ("[a.csv, b.csv]", "[a.csv, ./a.csv]"),
            ":7: source_spec.train[0].files[1]: expected each file once, got './a.csv' again "
            "(it is 'a.csv' of source_spec.train[0].files[0])",
        ),
    ],
)
def test_each_fault_is_said_with_its_place(write, change, expected):
    assert expected in problems_of(write(change))


def test_all_faults_are_said_at_once(write):
    file = write(
        ("dtype: bool", "dtype: int99"),
        ("cardinality: 7", "cardinality: -1"),
        ("type: parquet", "type: orc"),
        ("numbers: [age]", "numbers: [agge]"),
        ("files: [test.csv]", "files: [gone.csv]"),
    )
    assert [problem.split(":")[1] for problem in problems_of(file)] == ["2", "4", "8", "10", "13"]


def test_a_missing_section_is_said_once(tmp_path):
    file = tmp_path / "feature_spec.yaml"
    file.write_text("channel_spec: {label: [label]}\nfeature_spec: {label: {dtype: bool}}\n")
    assert problems_of(file) == [":1: source_spec: expected this section, got nothing"]


@pytest.mark.parametrize("text", ["[]", "3", "text", "null", "feature_spec: 3", "a: [", "\x00"])
def test_what_is_no_spec_at_all(tmp_path, text):
    file = tmp_path / "feature_spec.yaml"
    file.write_text(text)
    assert problems_of(file)


def test_writing_where_one_cannot_is_an_error_that_speaks(tmp_path):
    spec = read_spec(SPECS / "abstract_csv.yaml", check_files=False)
    with pytest.raises(MerlinSimError, match="cannot be written: No such file or directory"):
        spec.write(tmp_path / "missing" / "feature_spec.yaml")


@pytest.mark.parametrize("seed", range(40))
def test_whatever_bytes_come_only_a_spec_error_comes_back(tmp_path, seed):
    """Mutates a sound file: bits, slices moved, doubled and cut, YAML's own signs thrown in."""
    chance = random.Random(seed)
    sound = bytearray((SPECS / f"{NAMES[seed % 2]}.yaml").read_bytes())
    file = tmp_path / "feature_spec.yaml"
    signs = [
        b"&a ",
        b"*a",
        b"!!python/object:x ",
        b"<<: ",
        b"\n---\n",
        b"[",
        b"{",
        b"\t",
        b"? ",
        b"- ",
    ]
    signs += [b"\xff", b"\x00", b"\xc3\x28", b"'", b'"\\ud800"', b"%", b"0x", b": ", b"1e400", b"@"]
    for _ in range(40):
        mutated = bytearray(sound)
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(len(mutated))
            kind = chance.randrange(5)
            if kind == 0:
                mutated[place] ^= 1 << chance.randrange(8)
            elif kind == 1:
                del mutated[place : place + chance.randrange(40)]
            elif kind == 2:
                mutated[place:place] = chance.choice(signs)
            elif kind == 3:
                other = chance.randrange(len(mutated))
                mutated[place:place] = mutated[other : other + chance.randrange(60)]
            else:
                mutated[place:place] = bytes(chance.randrange(256) for _ in range(3))
            if not mutated:
                break
        file.write_bytes(bytes(mutated))
        try:
            read_spec(file, check_files=seed % 3 == 0)
        except SpecError as error:
            assert error.problems
            assert str(file) in str(error)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torch.int8", "int8"),
        ("torch.int", "int32"),
        ("torch.float", "float32"),
        ("float", "float64"),
        ("int", "int64"),
        ("np.float16", "float16"),
        (">f4", "float32"),
        ("?", "bool"),
        ("u2", "uint16"),
        ("bool", "bool"),
        ("datetime64[ms]", "datetime64[ms]"),
        ("f1", None),
        ("torch.banana", None),
        ("torch.<i4", None),
        ("int65", None),
        ("", None),
    ],
)
def test_dtype_spellings(spelling, name):
    assert canonical_dtype(spelling) == name


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
    for place in (
        ":4: source_spec.train: expected each key once",
        ":3: source_spec.train[0].features[1]: expected a feature of feature_spec",
        ":3: source_spec.train[0].files[0]: expected the path of a file",
        ":5: source_spec.3: expected keys that are text",
        ":7: channel_spec.label[1]: expected a feature of feature_spec",
        ":8: channel_spec.4: expected keys that are text",
    ):
        assert place in said


def test_a_models_channels_are_checked_in_the_same_go(write):
    file = write(("type: parquet", "type: orc"))
    with pytest.raises(SpecError) as caught:
        read_spec(file, model="dlrm")
    said = str(caught.value)
    assert "expected one of the chunk types" in said
    assert "channel_spec.categorical: expected at least 1 feature for dlrm" in said


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


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "foo"},
        {"dtype": "int8", "cardinality": 0},
        {"dtype": "int8", "cardinality": "many"},
        {"dtype": "int8", "dimensions": (3, -1)},
        {"dtype": "int8", "dimensions": ()},
        {"dtype": "int8", "extra": {"dtype": "int64"}},
    ],
)
def test_a_feature_checks_itself(wrong):
    with pytest.raises(MerlinSimError, match="A feature should have a known dtype"):
        Feature(**wrong)


def test_a_feature_takes_any_whole_numbers():
    import numpy as np

    feature = Feature("int8", np.int64(5), [np.int32(3)])
    assert feature == Feature("int8", 5, (3,))
    assert feature.to_dict() == {"dtype": "int8", "cardinality": 5, "dimensions": [3]}


def test_what_yaml_cannot_hold_is_refused_in_python_too():
    sections = {"feature_spec": {}, "source_spec": {}, "channel_spec": {}}
    sections["metadata"] = {1: 2, "deep": [{"set": {1, 2}}]}
    with pytest.raises(SpecError) as caught:
        spec_from_plain(sections)
    assert [str(problem).split(": ")[2] for problem in caught.value.problems] == [
        "expected keys that are text, got the number 1",
        "expected plain data, got {1, 2}",
    ]
