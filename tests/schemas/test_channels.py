"""What each family of models needs of a dataset's channels."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from spec_strategies import sim_specs

from merlin_sim.foundation.exceptions import MerlinSimError, SpecError
from merlin_sim.models.known_families import families
from merlin_sim.schemas.channels import (
    BEHAVIOUR,
    PLAIN_ROWS,
    channels_of,
    contract_named,
    register_contract,
    require_channels,
)
from merlin_sim.schemas.feature_spec import Feature, FeatureSpec
from merlin_sim.schemas.merlin_import import ColumnSchema, Schema, Tags
from merlin_sim.schemas.merlin_schema import to_feature_spec, to_merlin_schema
from merlin_sim.schemas.spec_file import read_spec

AMAZON = read_spec(Path(__file__).parent / "published" / "amazon_books.yaml", check_files=False)
DLRM = FeatureSpec(
    {"label": Feature("bool"), "cat_0": Feature("int32", 10), "num_0": Feature("float16")},
    {},
    {"label": ("label",), "categorical": ("cat_0",), "numerical": ("num_0",)},
)


def with_channel(spec, **channels):
    merged = {**spec.channel_spec, **channels}
    return replace(spec, channel_spec={name: v for name, v in merged.items() if v is not None})


def with_feature(spec, name, **changes):
    feature = replace(spec.feature_spec[name], **changes)
    return replace(spec, feature_spec={**spec.feature_spec, name: feature})


def test_a_family_is_known_by_name_before_any_model_is_imported():
    program = (
        "import sys; from merlin_sim.schemas.channels import contract_named; "
        "print(contract_named('twin').name, 'tensorflow' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=280)
    assert (found.stdout, found.stderr) == (b"twin False\n", b"")


def test_a_name_that_is_no_family_s_is_refused():
    with pytest.raises(MerlinSimError, match="known family of models: .*sim.*Received: 'mind'"):
        contract_named("mind")


def test_a_contract_that_another_contradicts_is_refused():
    families()
    with pytest.raises(MerlinSimError, match="'sim' has a contract of channels already"):
        register_contract("sim", PLAIN_ROWS)
    from_zero = replace(BEHAVIOUR, first_id=0)
    with pytest.raises(MerlinSimError, match="'mind' counts ids from 0, but 'behaviour', which"):
        register_contract("mind", from_zero)


@pytest.mark.parametrize("family", ["sim", "dien", "din"])
def test_the_published_dataset_fits_its_family(family):
    assert contract_named(family).problems(AMAZON) == []
    assert contract_named(family).problems(with_channel(AMAZON, user_features=())) == []
    assert contract_named(family).problems(with_channel(AMAZON, user_features=None)) == []


@pytest.mark.slow
@settings(max_examples=50)
@given(sim_specs())
def test_any_number_of_features_fits(spec):
    assert contract_named("sim").problems(spec) == []
    assert {name for name, names in spec.channel_spec.items() if names} == set(
        channels_of(to_merlin_schema(spec))
    )


def test_dlrm():
    assert contract_named("dlrm").problems(DLRM) == []
    assert channels_of(to_merlin_schema(DLRM)) == {
        "label": ["label"],
        "categorical": ["cat_0"],
        "numerical": ["num_0"],
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            with_channel(AMAZON, label=None),
            "channel_spec.label: expected 1 feature for sim, got no such channel",
        ),
        (
            with_channel(AMAZON, label=("label", "user_id")),
            "channel_spec.label: expected 1 feature for sim, got 2",
        ),
        (
            with_channel(AMAZON, negative_history=("item_id_neg",)),
            "channel_spec.negative_history: expected as many features as target_item_features has "
            "(2), got 1",
        ),
        (
            with_channel(AMAZON, positive_history=("cat_id_pos", "item_id_pos")),
            "channel_spec.positive_history[0]: expected the cardinality of item_id_trgt (1209081): "
            "one table, got 2330 (cat_id_pos)",
        ),
        (
            with_channel(AMAZON, user_feature=("user_id",)),
            "channel_spec.user_feature: expected a channel of sim: label, user_features, "
            "context_features, target_item_features, positive_history, negative_history, "
            "history_time_intervals, "
            "target_item_lists, user_numerical, target_item_numerical, got 'user_feature'",
        ),
        (
            with_feature(AMAZON, "item_id_pos", dimensions=None),
            "feature_spec.item_id_pos.dimensions: expected one length, such as [100] (channel "
            "positive_history), got none",
        ),
        (
            with_feature(AMAZON, "item_id_neg", dimensions=(50,)),
            "feature_spec.item_id_neg.dimensions: expected [100] as in item_id_pos: histories have "
            "one length, got [50]",
        ),
        (
            with_feature(AMAZON, "user_id", dimensions=(3,)),
            "feature_spec.user_id.dimensions: expected none: one value a row (channel "
            "user_features), got [3]",
        ),
        (
            with_feature(AMAZON, "user_id", cardinality="auto"),
            "feature_spec.user_id.cardinality: expected a positive whole number (channel "
            "user_features), got auto",
        ),
        (
            with_feature(AMAZON, "user_id", dtype="float32"),
            "feature_spec.user_id.dtype: expected a whole-number dtype (channel user_features), "
            "got float32",
        ),
        (
            with_feature(AMAZON, "label", dtype="str"),
            "feature_spec.label.dtype: expected a number's dtype (channel label), got str",
        ),
    ],
)
def test_what_does_not_fit_is_said(spec, problem):
    with pytest.raises(SpecError) as caught:
        contract_named("sim").check(spec)
    assert problem in [str(found).split(": ", 1)[1] for found in caught.value.problems]


def test_problems_of_a_spec_from_a_file_have_lines():
    problems = contract_named("dlrm").problems(AMAZON)
    assert all(problem.line for problem in problems)
    assert "amazon_books.yaml:4: channel_spec.negative_history" in " ".join(map(str, problems))


def test_plain_merlin_tags_report_the_channels():
    schema = Schema(
        [
            ColumnSchema("click", tags=[Tags.TARGET]),
            ColumnSchema("who", tags=[Tags.USER_ID]),
            ColumnSchema("what", tags=[Tags.ITEM_ID]),
            ColumnSchema("seen", tags=[Tags.SEQUENCE], is_list=True),
            ColumnSchema("unseen", tags=[Tags.SEQUENCE, "negative_history"], is_list=True),
            ColumnSchema("ago", tags=[Tags.SEQUENCE, Tags.TIME], is_list=True),
            ColumnSchema("noise"),
        ]
    )
    assert channels_of(schema) == {
        "label": ["click"],
        "user_features": ["who"],
        "target_item_features": ["what"],
        "positive_history": ["seen"],
        "negative_history": ["unseen"],
        "history_time_intervals": ["ago"],
    }
    assert require_channels(schema, "here") == channels_of(schema)


def test_missing_tags_are_named():
    schema = Schema(
        [
            ColumnSchema("what", tags=[Tags.ITEM_ID]),
            ColumnSchema("click"),
            ColumnSchema("ago", tags=[Tags.SEQUENCE, Tags.TIME], is_list=True),
        ]
    )
    with pytest.raises(MerlinSimError) as caught:
        require_channels(schema, "schema.pbtxt")
    message = str(caught.value)
    assert "label: no column is tagged Tags.TARGET" in message
    assert "positive_history: no list column is tagged Tags.SEQUENCE" in message
    assert "target_item_features" not in message
    assert "negative_history" not in message  # DIN and two towers read none


def test_a_schema_without_sequences_is_read_as_dlrms():
    schema = Schema(
        [
            ColumnSchema("click", tags=[Tags.BINARY_CLASSIFICATION]),
            ColumnSchema("advert", tags=[Tags.ITEM_ID, Tags.CATEGORICAL]),
            ColumnSchema("site", tags=[Tags.CATEGORICAL]),
            ColumnSchema("price", tags=[Tags.CONTINUOUS]),
        ]
    )
    assert channels_of(schema) == {
        "label": ["click"],
        "categorical": ["advert", "site"],
        "numerical": ["price"],
    }
    with pytest.raises(MerlinSimError, match="positive_history: no list column is tagged"):
        require_channels(schema, "here", "sim")


def test_histories_are_read_in_the_order_of_the_target_features_of_their_domains():
    def ids(name, domain, tag):
        properties = {"domain": {"min": 0, "max": 9, "name": domain}}
        dims = (None, (0, 5)) if "history" in tag else None
        return ColumnSchema(name, dtype="int64", tags=[tag], properties=properties, dims=dims)

    columns = [
        ids("item", "item", "target_item_features"),
        ids("cate", "cate", "target_item_features"),
        ids("cate_hist", "cate", "positive_history"),
        ids("item_hist", "item", "positive_history"),
        ids("cate_neg", "cate", "negative_history"),
        ids("item_neg", "item", "negative_history"),
    ]
    channels = channels_of(Schema(columns))
    assert channels["positive_history"] == ["item_hist", "cate_hist"]
    assert channels["negative_history"] == ["item_neg", "cate_neg"]
    spec = to_feature_spec(Schema(columns))
    assert spec.channel_spec["positive_history"] == ("item_hist", "cate_hist")
    assert to_merlin_schema(spec) == Schema(columns)
    without_names = Schema([c.with_properties({"domain": {"min": 0, "max": 9}}) for c in columns])
    assert channels_of(without_names)["positive_history"] == ["cate_hist", "item_hist"]
