"""What each family of models needs of a dataset's channels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

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


def channels(**changed):
    """The published spec with other channels; None for one that it lacks."""
    merged = {**AMAZON.channel_spec, **changed}
    return replace(AMAZON, channel_spec={name: v for name, v in merged.items() if v is not None})


def feature(name, **changes):
    """The published spec with another feature of this name."""
    changed = replace(AMAZON.feature_spec[name], **changes)
    return replace(AMAZON, feature_spec={**AMAZON.feature_spec, name: changed})


def test_an_unknown_family_and_a_contract_that_another_contradicts_are_refused():
    with pytest.raises(MerlinSimError, match="known family of models: .*sim.*Received: 'mind'"):
        contract_named("mind")
    families()
    with pytest.raises(MerlinSimError, match="'sim' has a contract of channels already"):
        register_contract("sim", PLAIN_ROWS)
    from_zero = replace(BEHAVIOUR, first_id=0)
    with pytest.raises(MerlinSimError, match="'mind' counts ids from 0, but 'behaviour', which"):
        register_contract("mind", from_zero)


def test_published_specs_fit_their_families():
    for family in ("sim", "dien", "din"):
        for users in (("user_id",), (), None):
            spec = channels(user_features=users)
            assert contract_named(family).problems(spec) == []
    assert contract_named("dlrm").problems(DLRM) == []
    assert channels_of(to_merlin_schema(DLRM)) == {
        "label": ["label"],
        "categorical": ["cat_0"],
        "numerical": ["num_0"],
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (channels(label=None), "label: expected 1 feature for sim, got no such channel"),
        (channels(label=("label", "user_id")), "label: expected 1 feature for sim, got 2"),
        (
            channels(negative_history=("item_id_neg",)),
            "negative_history: expected as many features as target_item_features has (2), got 1",
        ),
        (
            channels(positive_history=("cat_id_pos", "item_id_pos")),
            "positive_history[0]: expected the cardinality of item_id_trgt (1209081): one table, "
            "got 2330 (cat_id_pos)",
        ),
        (channels(user_feature=("user_id",)), "target_item_numerical, got 'user_feature'"),
        (
            feature("item_id_pos", dimensions=None),
            "dimensions: expected one length, such as [100] (channel positive_history), got none",
        ),
        (feature("item_id_neg", dimensions=(50,)), "expected [100] as in item_id_pos: histories"),
        (feature("user_id", dimensions=(3,)), "dimensions: expected none: one value a row"),
        (feature("user_id", cardinality="auto"), "cardinality: expected a positive whole number"),
        (feature("user_id", dtype="float32"), "user_id.dtype: expected a whole-number dtype"),
        (feature("label", dtype="str"), "label.dtype: expected a number's dtype (channel label)"),
    ],
)
def test_what_does_not_fit_is_said(spec, problem):
    with pytest.raises(SpecError) as caught:
        contract_named("sim").check(spec)
    assert problem in str(caught.value)


def test_problems_of_a_spec_from_a_file_have_lines():
    problems = contract_named("dlrm").problems(AMAZON)
    assert all(problem.line for problem in problems)
    assert "amazon_books.yaml:4: channel_spec.negative_history" in " ".join(map(str, problems))


def tagged(name, *tags, is_list=False):
    return ColumnSchema(name, tags=tags, is_list=is_list)


def test_plain_merlin_tags_report_the_channels_and_missing_ones_are_named():
    ago = tagged("ago", Tags.SEQUENCE, Tags.TIME, is_list=True)
    columns = [
        tagged("click", Tags.TARGET),
        tagged("who", Tags.USER_ID),
        tagged("what", Tags.ITEM_ID),
        tagged("seen", Tags.SEQUENCE, is_list=True),
        tagged("unseen", Tags.SEQUENCE, "negative_history", is_list=True),
        ago,
        tagged("noise"),
    ]
    schema = Schema(columns)
    assert channels_of(schema) == {
        "label": ["click"],
        "user_features": ["who"],
        "target_item_features": ["what"],
        "positive_history": ["seen"],
        "negative_history": ["unseen"],
        "history_time_intervals": ["ago"],
    }
    assert require_channels(schema, "here") == channels_of(schema)
    with pytest.raises(MerlinSimError) as caught:
        require_channels(Schema([columns[2], tagged("click"), ago]), "schema.pbtxt")
    message = str(caught.value)
    assert "label: no column is tagged Tags.TARGET" in message
    assert "positive_history: no list column is tagged Tags.SEQUENCE" in message
    assert "target_item_features" not in message
    assert "negative_history" not in message  # DIN and two towers read none


def test_a_schema_without_sequences_is_read_as_dlrms():
    schema = Schema(
        [
            tagged("click", Tags.BINARY_CLASSIFICATION),
            tagged("advert", Tags.ITEM_ID, Tags.CATEGORICAL),
            tagged("site", Tags.CATEGORICAL),
            tagged("price", Tags.CONTINUOUS),
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
    found = channels_of(Schema(columns))
    assert found["positive_history"] == ["item_hist", "cate_hist"]
    assert found["negative_history"] == ["item_neg", "cate_neg"]
    spec = to_feature_spec(Schema(columns))
    assert spec.channel_spec["positive_history"] == ("item_hist", "cate_hist")
    assert to_merlin_schema(spec) == Schema(columns)
    without_names = Schema([c.with_properties({"domain": {"min": 0, "max": 9}}) for c in columns])
    assert channels_of(without_names)["positive_history"] == ["cate_hist", "item_hist"]
