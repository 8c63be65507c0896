"""FeatureSpec <-> Merlin schema: identities both ways through files, and edits of either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from spec_strategies import feature_specs, merlin_schemas, sim_specs

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.column_record import same_schema
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.schemas.merlin_import import ColumnSchema, Schema, Tags
from merlin_sim.schemas.merlin_schema import to_feature_spec, to_merlin_schema
from merlin_sim.schemas.schema_file import (
    RECORD_PROPERTY,
    read_schema,
    schema_from_text,
    schema_to_text,
)
from merlin_sim.schemas.spec_file import read_feature_spec, read_spec

SPECS = Path(__file__).parents[1] / "published"
AMAZON = read_spec(SPECS / "amazon_books.yaml", check_files=False)
RELAXED = settings(max_examples=30, suppress_health_check=list(HealthCheck))


def through_file(schema: Schema) -> Schema:
    return schema_from_text(schema_to_text(schema))


@pytest.mark.slow
@RELAXED
@given(feature_specs())
def test_any_spec_comes_back_through_a_schema_file(spec):
    assert to_feature_spec(through_file(to_merlin_schema(spec))).to_yaml() == spec.to_yaml()


@pytest.mark.slow
@RELAXED
@given(merlin_schemas())
def test_any_schema_comes_back_through_a_file_of_either_kind(tmp_path_factory, schema):
    assert same_schema(through_file(schema), schema)
    file = tmp_path_factory.getbasetemp() / "feature_spec.yaml"
    to_feature_spec(schema).write(file)
    reading = read_feature_spec(file)
    assert reading.problems == []
    assert same_schema(to_merlin_schema(reading.spec), schema)


@RELAXED
@given(sim_specs())
def test_a_sim_spec_becomes_tables_of_cardinality_plus_one_rows(spec):
    schema = to_merlin_schema(spec)
    assert schema.column_names[0] == "label"
    for target, positive, negative in zip(
        *(spec.channel_spec[c] for c in ("target_item_features", "positive_history")),
        spec.channel_spec["negative_history"],
        strict=True,
    ):
        domains = [schema[name].properties["domain"] for name in (target, positive, negative)]
        assert domains[0] == domains[1] == domains[2]
        assert domains[0]["min"] == 0
        assert domains[0]["max"] == spec.feature_spec[target].cardinality
        assert schema[positive].is_ragged
        assert schema[positive].value_count.max == spec.feature_spec[positive].dimensions[0]
        assert not schema[target].is_list
    tables = {c.properties["domain"]["name"] for c in schema if "domain" in c.properties}
    users = len(spec.channel_spec["user_features"])
    assert len(tables) == users + len(spec.channel_spec["target_item_features"])


def test_amazon_books_and_click_logs_in_merlins_terms():
    schema = to_merlin_schema(AMAZON)
    histories = ["item_id_pos", "cat_id_pos", "item_id_neg", "cat_id_neg"]
    assert schema.column_names == ["label", "user_id", "item_id_trgt", "cat_id_trgt", *histories]
    assert {Tags.TARGET, Tags.BINARY_CLASSIFICATION} <= set(schema["label"].tags)
    assert schema.select_by_tag(Tags.USER).column_names == ["user_id"]
    assert schema.select_by_tag(Tags.ITEM_ID).column_names == ["item_id_trgt"]
    assert schema.select_by_tag(Tags.ITEM).column_names == ["item_id_trgt", "cat_id_trgt"]
    assert schema.select_by_tag(Tags.SEQUENCE).column_names == histories
    assert schema["cat_id_neg"].properties["domain"] == {"min": 0, "max": 2330, "name": "cat_id"}
    features = {"label": Feature("bool"), "cat_0": Feature("int32", 10), "n": Feature("float16")}
    channels = {"label": ("label",), "categorical": ("cat_0",), "numerical": ("n",)}
    schema = to_merlin_schema(FeatureSpec(features, {}, channels))
    assert schema["cat_0"].properties["domain"] == {"min": 0, "max": 9, "name": "cat_0"}
    assert Tags.CONTINUOUS in schema["n"].tags


def test_tables_of_different_features_never_share_a_name():
    features = {
        "item": Feature("int64", 3),
        "item_t": Feature("int64", 5),
        "item_p": Feature("int64", 5, (4,)),
        "item_n": Feature("int64", 5, (4,)),
    }
    channels = ("user_features", "target_item_features", "positive_history", "negative_history")
    given = {channel: (name,) for channel, name in zip(channels, features, strict=True)}
    schema = to_merlin_schema(FeatureSpec(features, {}, given))
    assert schema["item"].properties["domain"]["name"] == "item"
    assert schema["item_p"].properties["domain"]["name"] == "item_t"


def test_an_edit_in_a_schema_is_carried_out_on_the_spec_it_carries():
    spec = replace(AMAZON, metadata={"made": "by us"})
    text = schema_to_text(to_merlin_schema(spec)).replace("max: 2330", "max: 2331")
    edited = to_feature_spec(schema_from_text(text))
    wanted = {
        name: replace(feature, cardinality=2331) if name.startswith("cat_id") else feature
        for name, feature in spec.feature_spec.items()
    }
    assert edited == replace(spec, feature_spec=wanted)
    assert list(edited.feature_spec) == list(spec.feature_spec)
    assert to_feature_spec(to_merlin_schema(edited)) == edited
    without = to_feature_spec(to_merlin_schema(spec).excluding_by_name(["user_id"]))
    assert "user_id" not in without.feature_spec
    assert without.channel_spec["user_features"] == ()
    assert "user_id" not in without.source_spec["train"][0].features
    first, *others = to_merlin_schema(spec).column_schemas.values()
    moved = to_feature_spec(through_file(Schema([*others, first])))
    assert moved.source_spec == spec.source_spec
    assert moved.metadata["made"] == "by us"


def test_an_added_column_leaves_features_of_no_channel_where_they_are():
    features = {
        "label": Feature("bool"),
        **{name: Feature("int64", 10) for name in ("a", "free_ids")},
        **{name: Feature("float32") for name in ("n", "free_number")},
    }
    channels = {"label": ("label",), "categorical": ("a",), "numerical": ("n",)}
    chunks = (Chunk("parquet", tuple(features), ("train.parquet",)),)
    schema = to_merlin_schema(FeatureSpec(features, {"train": chunks}, channels))
    domain = {"domain": {"min": 0, "max": 4, "name": "b"}}
    added = ColumnSchema("b", dtype="int64", tags=[Tags.CATEGORICAL], properties=domain)
    edited = to_feature_spec(through_file(Schema([*schema.column_schemas.values(), added])))
    assert edited.channel_spec == {**channels, "categorical": ("a", "b")}
    assert edited.feature_spec == {**features, "b": Feature("int64", 5)}


def test_the_text_has_one_order_and_an_edited_column_wins_over_its_record():
    names = [f"property_{number}" for number in range(20)]
    texts = {
        schema_to_text(Schema([ColumnSchema("user", properties=dict.fromkeys(order, "x"))]))
        for order in (names, names[::-1], sorted(names, key=lambda name: name[::-1]))
    }
    assert len(texts) == 1
    column = ColumnSchema("x", dtype="int32", properties={"domain": {"min": 0, "max": 7}, "n": 1})
    text = schema_to_text(Schema([column]))
    assert RECORD_PROPERTY in text
    edited = schema_from_text(text.replace("max: 7", "max: 8"))
    assert edited["x"].properties["domain"]["max"] == 8
    assert RECORD_PROPERTY not in edited["x"].properties


def test_an_edit_in_a_spec_is_carried_out_on_the_schema_it_carries():
    columns = [
        ColumnSchema("x", dtype="int32", properties={"odd": (1, 2)}, tags=["mine"]),
        ColumnSchema("y", dtype="bool", tags=["ours"]),
    ]
    spec = to_feature_spec(Schema(columns))
    assert "merlin_schema" in spec.metadata
    features = {**spec.feature_spec, "x": Feature("int64", cardinality=4), "z": Feature("int8")}
    edited = to_merlin_schema(replace(spec, feature_spec=features))
    assert edited["x"].dtype.name == "int64"
    assert edited["x"].properties["domain"] == {"min": 0, "max": 3, "name": "x"}
    assert edited["x"].properties["odd"] == (1, 2)
    assert "mine" in edited["x"].tags
    assert edited["y"].tags == columns[1].tags
    assert edited.column_names == ["x", "y", "z"]
    with_files = replace(spec, source_spec={"train": (Chunk("parquet", ("x",), ("a.parquet",)),)})
    assert to_feature_spec(to_merlin_schema(with_files)) == with_files


def test_what_is_no_schema_is_refused(tmp_path):
    chunk = (Chunk("csv", ("x",), ("x.csv",)),)
    with pytest.raises(MerlinSimError, match="at least one feature"):
        to_merlin_schema(FeatureSpec({}, {"train": chunk}, {}))
    assert to_feature_spec(Schema([])).feature_spec == {}
    with pytest.raises(MerlinSimError, match="column 'x': property 'thing': a object"):
        to_feature_spec(Schema([ColumnSchema("x", properties={"thing": object()})]))
    for text, said in (
        ('feature { name: "a" } feature { name: "a" type: INT }', "found twice: a"),
        *((text, "s.pbtxt") for text in ("feature {", "nonsense", "feature { name: 3 }", "\x00")),
    ):
        (tmp_path / "s.pbtxt").write_text(text)
        with pytest.raises(MerlinSimError, match=said):
            read_schema(tmp_path / "s.pbtxt")
