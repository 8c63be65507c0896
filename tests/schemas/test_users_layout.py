"""What a spec of users must say, and that nothing of it is lost on the way to a Merlin schema."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import yaml
from attack.damage import TREE_CHANGES
from hypothesis import given
from small_users import write_users_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory, load_spec
from merlin_sim.schemas.feature_spec import Chunk
from merlin_sim.schemas.fingerprint import fingerprint
from merlin_sim.schemas.merlin_schema import to_feature_spec, to_merlin_schema
from merlin_sim.schemas.schema_file import write_schema
from merlin_sim.schemas.spec_file import read_spec
from merlin_sim.schemas.users_layout import users_layout, users_problems
from merlin_sim.workflows.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.dataset_spec import samples_schema, users_layout_of, users_spec
from merlin_sim.workflows.feature import Category, Cross, Encoding, FeatureSet, Number
from merlin_sim.workflows.fitted_numbers import FittedNumbers
from merlin_sim.workflows.rules import SampleRules


@pytest.fixture
def users(tmp_path):
    return write_users_dataset(tmp_path / "dataset", [[[5, 9]], [[4]]])


def test_the_directory_says_how_samples_are_made(users):
    dataset = DatasetDirectory.open(users, model="sim")
    layout = dataset.users
    assert layout.history == "thing"
    assert layout.positions == {
        "train": ("train_begin", "train_end"),
        "test": ("test_begin", "test_end"),
    }
    assert (layout.item_table, layout.item_features) == ("categories/thing.parquet", ("kind",))
    assert (layout.negatives, layout.seed) == ("popularity", 99)
    with pytest.raises(MerlinSimError, match="train is in users; .*merlin-sim data transcode"):
        dataset.files("train")
    assert layout.samples_per_position == 2
    assert "negatives_per_positive" not in layout.to_dict()
    edit(users, of_users(negatives_per_positive=4))
    several = DatasetDirectory.open(users).users
    assert several.samples_per_position == 5
    assert several.to_dict() == {**layout.to_dict(), "negatives_per_positive": 4}


def test_nothing_is_lost_on_the_way_to_a_schema_and_back(users):
    spec = read_spec(users / "feature_spec.yaml")
    assert to_feature_spec(to_merlin_schema(spec)) == spec
    (users / "feature_spec.yaml").unlink()
    with pytest.raises(MerlinSimError, match=r"expected parquet files beside schema\.pbtxt"):
        DatasetDirectory.open(users)


def test_the_name_of_what_it_holds_depends_on_draws_and_items(users):
    before = fingerprint(DatasetDirectory.open(users))
    edit(users, lambda spec: spec["metadata"]["users"].update(seed=100))
    seeded = fingerprint(DatasetDirectory.open(users))
    table = pq.read_table(users / "categories/thing.parquet")
    pq.write_table(table, users / "categories/thing.parquet", compression="none")
    assert len({before, seeded, fingerprint(DatasetDirectory.open(users))}) == 3


FILES = {"train": "a", "validation": "b", "test": "c"}
BESIDE = ("categories/thing.parquet", "item_changes/price.parquet", "events/kind.parquet")


@pytest.mark.parametrize("is_of_users", [False, True], ids=["samples", "users"])
def test_the_name_of_what_it_holds_depends_on_each_file_and_its_mapping(is_of_users, tmp_path):
    spec = replace(spec_with_all(), metadata={})
    if is_of_users:
        metadata = spec_with_all().metadata
        metadata["users"]["item_changes"] = {"price": BESIDE[1]}
        spec = replace(spec, metadata=metadata)
    kind = "users" if is_of_users else "parquet"
    names = [*FILES.values(), *(BESIDE if is_of_users else ())]

    def name_now(**mappings):
        sources = {mapping: (Chunk(kind, (), tuple(files)),) for mapping, files in mappings.items()}
        spec_now = replace(spec, source_spec=sources)
        return fingerprint(DatasetDirectory(tmp_path, spec_now, to_merlin_schema(spec_now)))

    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"0")
    found = [name_now(train="a", validation="b", test="c")]
    found += [name_now(train="ab", test="c"), name_now(train="a", test="bc")]
    for name in names:
        (tmp_path / name).write_bytes(b"1")
        found.append(name_now(train="a", validation="b", test="c"))
    assert len({*found}) == len(found) == 3 + len(names)


def edit(directory, change):
    """Change the spec; the schema beside it goes, for it would say otherwise."""
    path = directory / "feature_spec.yaml"
    spec = yaml.safe_load(path.read_text())
    change(spec)
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    (directory / "schema.pbtxt").unlink(missing_ok=True)


def of_users(**changes):
    return lambda spec: spec["metadata"]["users"].update(changes)


def without(key):
    return lambda spec: spec["metadata"]["users"].pop(key)


def one_chunk_of_samples(spec):
    spec["source_spec"]["test"][0]["type"] = "parquet"


def a_second_chunk(spec):
    chunk = copy.deepcopy(spec["source_spec"]["train"][0])
    spec["source_spec"]["train"] = [
        {**chunk, "features": chunk["features"][:1]},
        {**chunk, "features": chunk["features"][1:]},
    ]


def no_user_features(spec):
    for name in spec["channel_spec"].pop("user_features"):
        del spec["feature_spec"][name]
        for chunks in spec["source_spec"].values():
            chunks[0]["features"].remove(name)


def a_feature_of_its_own(spec):
    spec["feature_spec"]["price"] = {"dtype": "float32"}
    for chunks in spec["source_spec"].values():
        chunks[0]["features"].append("price")


def a_number_of_users(spec):
    a_feature_of_its_own(spec)
    spec["channel_spec"]["user_numerical"] = ["price"]


def test_times_are_said_where_there_are_some(tmp_path):
    files = [[[5, 9]]]
    users = write_users_dataset(tmp_path / "dataset", files, time_intervals="days")
    layout = DatasetDirectory.open(users, model="twin").users
    assert (layout.times, layout.time_unit) == ("when", "days")
    spec = read_spec(users / "feature_spec.yaml")
    assert to_feature_spec(to_merlin_schema(spec)) == spec
    for change, message in WRONG_TIMES:
        broken = write_users_dataset(tmp_path / message[:9], files, time_intervals="days")
        edit(broken, change)
        with pytest.raises(MerlinSimError, match=message):
            DatasetDirectory.open(broken)


def no_intervals(spec):
    (name,) = spec["channel_spec"].pop("history_time_intervals")
    del spec["feature_spec"][name]
    for chunks in spec["source_spec"].values():
        chunks[0]["features"].remove(name)


WRONG_TIMES = [
    (without("times"), "users.times: expected column and unit, of which when_since_pos is made"),
    (of_users(times="when"), "times: expected a mapping with column and unit"),
    (of_users(times={"column": 3, "unit": "days"}), "times.column: expected the name of a column"),
    (of_users(times={"column": "thing", "unit": "days"}), "column: expected a column that holds"),
    (of_users(times={"column": "when", "unit": "weeks"}), "unit: expected seconds or minutes or"),
    (of_users(times={"column": "then", "unit": "days"}), r"\.parquet: then: expected one column"),
    (of_users(times={"column": "user", "unit": "days"}), "columns? that hold"),
    (no_intervals, "channel history_time_intervals has no feature"),
]

WRONG = {
    "a number": (a_number_of_users, r"part\.0\.parquet: price: expected one column, got none"),
    "neither true nor false": (
        of_users(negatives_not_in_history=1),
        "users.negatives_not_in_history: expected true or false",
    ),
    "no negatives": (
        of_users(negatives_per_positive=0),
        r"users.negatives_per_positive: expected a whole number in 1\.\.",
    ),
    "nothing said": (lambda s: s.pop("metadata"), "metadata.users: expected a mapping with"),
    "something missing": (without("seed"), "metadata.users: expected a mapping with"),
    "no column": (of_users(history=3), "metadata.users.history: expected the name of a column"),
    "positions of one": (of_users(positions={"train": ["a", "b"]}), "positions: expected two"),
    "one position": (
        of_users(positions={"train": ["a"], "test": ["b", "c"]}),
        r"users.positions.train: expected two names of columns",
    ),
    "one column twice": (
        of_users(positions={"train": ["a", "b"], "test": ["b", "c"]}),
        "positions.test: expected columns that hold nothing else, got the text 'b'",
    ),
    "a table elsewhere": (of_users(item_table="../x"), "item_table: expected the path of a file"),
    "a table that is not": (of_users(item_table="x"), "item_table: expected a file that exists"),
    "too many features": (of_users(item_features=["a", "b"]), "item_features: expected 1 columns"),
    "unknown draws": (of_users(negatives="often"), "negatives: expected popularity or uniform"),
    "no seed": (of_users(seed=-1), r"users.seed: expected a whole number in 0"),
    "samples beside": (one_chunk_of_samples, "source_spec.test: expected one chunk of users"),
    "two chunks": (a_second_chunk, "source_spec.train: expected one chunk of users"),
    "nobody": (no_user_features, "user_features: expected at least one feature"),
    "a feature more": (a_feature_of_its_own, "price: expected a feature of a channel"),
    "no such column": (
        of_users(history="things"), r"part\.0\.parquet: things: expected one column, got none"
    ),
    "no such feature": (
        of_users(item_features=["brand"]), r"thing\.parquet: brand: expected one column, got none"
    ),
    "not a history": (of_users(history="train_begin"), "positions.train: expected columns that"),
}  # fmt: skip


@pytest.mark.parametrize("change, message", WRONG.values(), ids=WRONG)
def test_what_does_not_hold_together_is_refused(users, change, message):
    edit(users, change)
    with pytest.raises(MerlinSimError, match=message):
        DatasetDirectory.open(users)


def test_tables_that_do_not_fit_the_spec_are_refused(users):
    path = users / "users/part.1.parquet"
    table = pq.read_table(path)
    country = table.schema.get_field_index("country")
    pq.write_table(table.set_column(country, "country", [["a"] * table.num_rows]), path)
    with pytest.raises(MerlinSimError, match=r"part\.1\.parquet: country: expected one value"):
        DatasetDirectory.open(users)
    pq.write_table(table, path)
    path = users / "categories/thing.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(MerlinSimError, match="expected 50 rows, the cardinality of thing_trgt"):
        DatasetDirectory.open(users)


def spec_with_all():
    """A spec whose layout has every key but those of logs that go on."""
    features = FeatureSet(
        (Category("device", "interaction"), Number("price", "item")),
        time_intervals="days",
        crosses=(Cross("device_kind", ("device", "kind"), 9),),
        encodings=(Encoding("kind", ("count", "recency", "target")),),
        lifetime_counts=("kind",),
    )
    columns = BehaviourColumns(
        "user", "thing", "when", item_features=("kind",), label="taken", features=features
    )
    layout = users_layout_of(columns, SampleRules(), FittedNumbers(), ("kind",))
    sizes = dict.fromkeys(columns.domains, 9)
    return users_spec(samples_schema(columns, sizes, 5), layout, ("users/part.0.parquet",))


@given(TREE_CHANGES)
def test_whatever_a_layout_says_is_read_or_a_problem(damage):
    assert users_problems(spec_with_all(), None) == []
    assert users_layout(spec_with_all()).to_dict() == spec_with_all().metadata["users"]
    metadata = {"users": json.loads(json.dumps(spec_with_all().metadata["users"]))}
    damage.change(metadata)
    spec = replace(spec_with_all(), metadata=metadata)
    if not users_problems(spec, None):
        assert users_layout(spec) is not None


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda s: s["lifetime_counts"].update(kind_lifetime_count_trgt=["kind_trgt"]), "lifetime"),
        (lambda s: s["encodings"]["kind_count_trgt"].update(feature=[]), "encodings"),
        (lambda s: s["encodings"]["kind_count_trgt"].update(kind=[]), "encodings"),
        (lambda s: s.update(per_interaction=[["device"]]), "per_interaction"),
        (lambda s: s.update(item_features=3), "item_features"),
        (lambda s: s.update(item_features=[["kind"]]), "item_features"),
        (lambda s: s["item_columns"].update(price_trgt=[]), "item_columns"),
        (lambda s: s.update(positions=[["train"]]), "positions"),
    ],
)
def test_lists_in_the_place_of_names_are_problems(change, key):
    stated = spec_with_all().metadata["users"]
    change(stated)
    problems = users_problems(replace(spec_with_all(), metadata={"users": stated}), None)
    assert any(key in str(problem) for problem in problems)


def test_a_schema_is_held_to_what_the_spec_that_it_carries_says_of_users(tmp_path):
    spec, schema = spec_with_all(), tmp_path / "users.pbtxt"
    write_schema(to_merlin_schema(spec), schema)
    assert load_spec(schema, check_files=False) == spec
    stated = {**spec.metadata["users"], "negatives": "foo"}
    write_schema(to_merlin_schema(replace(spec, metadata={"users": stated})), schema)
    with pytest.raises(MerlinSimError, match="metadata.users.negatives: expected .*'foo'"):
        load_spec(schema, check_files=False)
