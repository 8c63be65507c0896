"""The options of the interest models, and their columns: what they are, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import Schema

from merlin_sim.models import (
    DIENOptions,
    DINModel,
    DINOptions,
    ETAOptions,
    OptionError,
    SDIMOptions,
    SIMOptions,
    TWINOptions,
    build_model,
)
from merlin_sim.models.interest_channels import Channels


def test_the_defaults_are_the_published_ones():
    options = SIMOptions()
    assert options.embedding_dim == 16 and options.dropout_rate is None
    assert options.stage_one_mlp_dims == (200,) and options.stage_two_mlp_dims == (200, 80)
    assert options.aux_mlp_dims == (100, 50)
    assert options.top_k == 50
    assert options.stage_one and options.short_history == "dien"
    assert not options.history_counts and not options.attention_sums
    eta, sdim, twin = ETAOptions(), SDIMOptions(), TWINOptions()
    assert (eta.top_k, eta.hash_bits, twin.top_k) == (48, 64, 100)
    assert (sdim.hashes, sdim.bits_per_hash, sdim.collision_counts) == (32, 4, False)
    for options in (eta, sdim, twin):
        assert not options.stage_one and options.short_history == "attention"


@pytest.mark.parametrize(
    ("cls", "given", "named"),
    [
        (DINOptions, {"embedding_dim": 0}, "embedding_dim"),
        (DINOptions, {"embedding_dim": 4.0}, "embedding_dim"),
        (DINOptions, {"stage_two_mlp_dims": (8, 0)}, "stage_two_mlp_dims"),
        (DINOptions, {"dropout_rate": 1.0}, "dropout_rate"),
        (DINOptions, {"attention": "cosine"}, "attention"),
        (DINOptions, {"history_counts": 1}, "history_counts"),
        (DINOptions, {"history_prototypes": 0}, "history_prototypes"),
        (DIENOptions, {"aux_mlp_dims": ()}, "aux_mlp_dims"),
        (DIENOptions, {"auxiliary_loss": 0}, "auxiliary_loss"),
        (SIMOptions, {"stage_one_mlp_dims": 200}, "stage_one_mlp_dims"),
        (SIMOptions, {"long_seq_length": 0}, "long_seq_length"),
        (SIMOptions, {"search": "fuzzy"}, "search"),
        (SIMOptions, {"search": "hard"}, "search"),
        (SIMOptions, {"category_feature": "item_1"}, "category_feature"),
        (SIMOptions, {"heads": 0}, "heads"),
        (SIMOptions, {"time_buckets": 0}, "time_buckets"),
        (SIMOptions, {"short_history": "gru"}, "short_history"),
        (SIMOptions, {"auxiliary_loss": False, "aux_mlp_dims": (8,)}, "aux_mlp_dims"),
        (SIMOptions, {"short_history": "attention", "auxiliary_loss": False}, "auxiliary_loss"),
        (ETAOptions, {"hash_bits": 0}, "hash_bits"),
        (ETAOptions, {"stage_one_mlp_dims": (8,)}, "stage_one_mlp_dims"),
        (SDIMOptions, {"hashes": 0}, "hashes"),
        (SDIMOptions, {"bits_per_hash": 2.5}, "bits_per_hash"),
        (TWINOptions, {"top_k": -1}, "top_k"),
    ],
)
def test_every_option_is_checked_also_against_the_others(cls, given, named):
    with pytest.raises(OptionError, match=f"`{named}`"):
        cls.parse(given)


@pytest.mark.parametrize(
    ("options", "length", "long"),
    [
        (SIMOptions(), 1000, 990),
        (DIENOptions(), 1000, 990),
        (SIMOptions(), 6, 1),
        (DIENOptions(long_seq_length=0), 10, 0),
        (SIMOptions(short_history="none"), 1000, 1000),
        (SIMOptions(short_history="none", long_seq_length=90), 1000, 90),
        (TWINOptions(short_history="none", long_seq_length=10), 10, 10),
    ],
)
def test_a_long_history_is_all_but_the_newest_ten_if_nobody_says_otherwise(options, length, long):
    assert options.for_history(length).long_seq_length == long
    assert options.for_history(length).for_history(length) == options.for_history(length)


@pytest.mark.parametrize(
    ("options", "length", "message"),
    [
        (DIENOptions(long_seq_length=90), 10, "at most 9, .* 10 positions. .* = 90"),
        (SIMOptions(), 1, "at most 0, .* 1 positions"),
        (TWINOptions(short_history="none", long_seq_length=11), 10, "at most 10, .* = 11"),
    ],
)
def test_a_long_history_must_leave_a_short_one_where_there_is_one(options, length, message):
    with pytest.raises(OptionError, match=message):
        options.for_history(length)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("sim", {"topk": 3}, "Unknown option: topk. .*top_k"),
        ("din", {"recent_length": 11}, "`recent_length` should be at most 10"),
        ("dien", {"recent_length": 4, "long_seq_length": 7}, "at most 3, .*4 positions"),
        ("two_tower", {"history_prototypes": 4}, "Unknown option: history_prototypes"),
        (
            "sim",
            {"search": "hard", "category_feature": "user_0"},
            "`category_feature` should be 'item_0' or 'item_1'",
        ),
    ],
)
def test_a_model_refuses_options_that_do_not_fit_its_schema(kind, options, message, schema):
    with pytest.raises(OptionError, match=message):
        build_model(kind, schema, **options)


def test_everything_that_does_not_fit_is_said_at_once(make_schema):
    schema = make_schema().excluding_by_name(["label", "item_1_hist"])
    longer = make_schema(history_length=12)["item_0_neg_hist"]
    schema = Schema([longer if c.name == longer.name else c for c in schema])
    with pytest.raises(OptionError) as error:
        Channels.read(schema)
    message = str(error.value)
    assert "label: one column. Received: []" in message
    assert "as many columns as target_item_features. Received: 1 and 2 for 2" in message
    assert "'item_0_neg_hist': 12" in message


def in_order(schema, names):
    return Schema([schema[name] for name in names])


def with_domain(schema, name, domain):
    """The same schema, but for the name of one column's domain."""
    column = schema[name]
    renamed = column.with_properties({"domain": {**column.properties["domain"], "name": domain}})
    return Schema([renamed if other.name == name else other for other in schema])


CROSSED = [
    "label",
    "item_0",
    "item_1",
    "item_1_hist",
    "item_0_hist",
    "item_1_neg_hist",
    "item_0_neg_hist",
]


def test_a_history_is_paired_with_the_target_feature_of_its_domain(make_schema):
    channels = Channels.read(in_order(make_schema(), CROSSED))
    assert channels.history_of == {"item_0": "item_0_hist", "item_1": "item_1_hist"}
    assert channels.negative == ("item_0_neg_hist", "item_1_neg_hist")


def test_features_of_one_domain_are_paired_in_the_order_of_the_schema(make_schema):
    schema = make_schema(items=(20, 20, 6))
    for name in ("item_1", "item_1_hist", "item_1_neg_hist"):
        schema = with_domain(schema, name, "item_0")
    histories = [f"item_{i}{end}" for i in (2, 0, 1) for end in ("_hist", "_neg_hist")]
    channels = Channels.read(in_order(schema, ["label", "item_0", "item_1", "item_2", *histories]))
    assert channels.positive == ("item_0_hist", "item_1_hist", "item_2_hist")
    assert channels.negative == ("item_0_neg_hist", "item_1_neg_hist", "item_2_neg_hist")


@pytest.mark.parametrize(
    ("channel", "history"),
    [("positive_history", "item_0_hist"), ("negative_history", "item_0_neg_hist")],
)
def test_a_history_without_a_target_feature_of_its_domain_is_refused(channel, history, make_schema):
    schema = in_order(with_domain(make_schema(), history, "clicked"), CROSSED)
    with pytest.raises(OptionError) as error:
        Channels.read(schema)
    message = str(error.value)
    assert f"{channel}: " in message and "one domain name" in message
    assert f"{history!r} (domain 'clicked') for 'item_0' (domain 'item_0')" in message
    assert "item_1" not in message


def test_the_order_of_the_columns_changes_no_logit(make_schema, make_columns, as_batch):
    schema = make_schema(users=())
    tf.keras.utils.set_random_seed(1)
    small = {"embedding_dim": 4, "stage_two_mlp_dims": (8,), "history_counts": True}
    model = DINModel.from_schema(schema, **small)
    crossed = DINModel.from_schema(in_order(schema, CROSSED), **small)
    crossed.set_weights(model.get_weights())
    batch, _ = as_batch(make_columns(schema, 20), 10, ragged=True)
    ours, theirs = crossed.forward(batch).logits, model.forward(batch).logits
    assert np.std(theirs) > 1e-4
    np.testing.assert_array_equal(ours, theirs)
