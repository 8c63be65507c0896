"""The options of the interest models: what they are by themselves, and what is refused."""

from __future__ import annotations

import pytest

from merlin_sim.models import (
    DIENOptions,
    DINOptions,
    ETAOptions,
    OptionError,
    SDIMOptions,
    SIMOptions,
    TWINOptions,
    build_model,
)


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


@pytest.mark.parametrize("cls", [DINOptions, DIENOptions, SIMOptions, ETAOptions, SDIMOptions])
def test_options_survive_json(cls):
    options = cls(stage_two_mlp_dims=[8, 4], dropout_rate=0.5)
    assert cls.parse(options.to_dict()) == options


@pytest.mark.parametrize(
    ("cls", "given", "named"),
    [
        (DINOptions, {"embedding_dim": 0}, "embedding_dim"),
        (DINOptions, {"embedding_dim": 4.0}, "embedding_dim"),
        (DINOptions, {"embedding_dim": True}, "embedding_dim"),
        (DINOptions, {"stage_two_mlp_dims": (8, 0)}, "stage_two_mlp_dims"),
        (DINOptions, {"stage_two_mlp_dims": "8"}, "stage_two_mlp_dims"),
        (DINOptions, {"dropout_rate": 1.0}, "dropout_rate"),
        (DINOptions, {"dropout_rate": -1}, "dropout_rate"),
        (DINOptions, {"attention": "cosine"}, "attention"),
        (DINOptions, {"history_counts": 1}, "history_counts"),
        (DINOptions, {"history_similarity": 1}, "history_similarity"),
        (DINOptions, {"history_prototypes": 0}, "history_prototypes"),
        (DINOptions, {"recent_length": 0}, "recent_length"),
        (DINOptions, {"attention_sums": None}, "attention_sums"),
        (DIENOptions, {"aux_mlp_dims": ()}, "aux_mlp_dims"),
        (DIENOptions, {"one_pass": 1}, "one_pass"),
        (DIENOptions, {"auxiliary_loss": 0}, "auxiliary_loss"),
        (DIENOptions, {"long_seq_length": -1}, "long_seq_length"),
        (SIMOptions, {"stage_one_mlp_dims": 200}, "stage_one_mlp_dims"),
        (SIMOptions, {"attention_sums": "yes"}, "attention_sums"),
        (SIMOptions, {"long_seq_length": 0}, "long_seq_length"),
        (SIMOptions, {"top_k": 0}, "top_k"),
        (SIMOptions, {"search": "fuzzy"}, "search"),
        (SIMOptions, {"search": "hard"}, "search"),
        (SIMOptions, {"category_feature": "item_1"}, "category_feature"),
        (SIMOptions, {"heads": 0}, "heads"),
        (SIMOptions, {"time_buckets": 0}, "time_buckets"),
        (SIMOptions, {"short_history": "gru"}, "short_history"),
        (SIMOptions, {"auxiliary_loss": False, "aux_mlp_dims": (8,)}, "aux_mlp_dims"),
        (SIMOptions, {"short_history": "attention", "auxiliary_loss": False}, "auxiliary_loss"),
        (ETAOptions, {"top_k": 0}, "top_k"),
        (ETAOptions, {"hash_bits": 0}, "hash_bits"),
        (ETAOptions, {"heads": None}, "heads"),
        (ETAOptions, {"stage_one_mlp_dims": (8,)}, "stage_one_mlp_dims"),
        (ETAOptions, {"aux_mlp_dims": (8,)}, "aux_mlp_dims"),
        (SDIMOptions, {"hashes": 0}, "hashes"),
        (SDIMOptions, {"bits_per_hash": 2.5}, "bits_per_hash"),
        (SDIMOptions, {"collision_counts": 1}, "collision_counts"),
        (TWINOptions, {"top_k": -1}, "top_k"),
        (TWINOptions, {"time_buckets": 0}, "time_buckets"),
        (TWINOptions, {"stage_one": "yes"}, "stage_one"),
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
        (DIENOptions(), 6, 0),
        (DIENOptions(long_seq_length=0), 10, 0),
        (SIMOptions(short_history="none"), 1000, 1000),
        (SIMOptions(long_seq_length=90), 1000, 90),
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
        (TWINOptions(long_seq_length=10), 10, "at most 9"),
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
