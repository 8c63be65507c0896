from __future__ import annotations

import pytest

from merlin_sim.models import DIENOptions, DINOptions, OptionError, SIMOptions


def test_the_defaults_are_the_published_ones():
    options = SIMOptions()
    assert options.embedding_dim == 16 and options.dropout_rate is None
    assert options.stage_one_mlp_dims == (200,) and options.stage_two_mlp_dims == (200, 80)
    assert options.aux_mlp_dims == (100, 50)
    assert options.top_k == 50
    assert options.for_history(100).long_seq_length == 90
    assert options.stage_one and options.short_history == "dien"
    assert not options.history_counts and not options.attention_sums


@pytest.mark.parametrize(
    ("cls", "option", "value"),
    [
        (DINOptions, "embedding_dim", 0),
        (DINOptions, "embedding_dim", 4.0),
        (DINOptions, "embedding_dim", True),
        (DINOptions, "stage_two_mlp_dims", (8, 0)),
        (DINOptions, "stage_two_mlp_dims", "8"),
        (DINOptions, "dropout_rate", 1.0),
        (DINOptions, "dropout_rate", -1),
        (DINOptions, "attention", "cosine"),
        (DINOptions, "history_counts", 1),
        (DINOptions, "history_similarity", 1),
        (DINOptions, "history_prototypes", 0),
        (DINOptions, "recent_length", 0),
        (DINOptions, "attention_sums", None),
        (DIENOptions, "aux_mlp_dims", ()),
        (DIENOptions, "one_pass", 1),
        (DIENOptions, "auxiliary_loss", 0),
        (DIENOptions, "long_seq_length", -1),
        (SIMOptions, "stage_one_mlp_dims", 200),
        (SIMOptions, "attention_sums", "yes"),
        (SIMOptions, "top_k", 0),
        (SIMOptions, "search", "fuzzy"),
        (SIMOptions, "search", "hard"),
        (SIMOptions, "category_feature", "item_1"),
        (SIMOptions, "heads", 0),
        (SIMOptions, "time_buckets", 0),
    ],
)
def test_every_option_is_checked(cls, option, value):
    with pytest.raises(OptionError, match=f"`{option}`"):
        cls.parse({option: value})


def test_an_unknown_option_is_named_with_those_there_are():
    with pytest.raises(OptionError, match="Unknown option: topk. .*top_k"):
        SIMOptions.parse({"topk": 3})


@pytest.mark.parametrize("cls", [DINOptions, DIENOptions, SIMOptions])
def test_options_survive_json(cls):
    options = cls(stage_two_mlp_dims=[8, 4], dropout_rate=0.5)
    assert cls.parse(options.to_dict()) == options


def test_a_long_history_must_leave_a_short_one():
    with pytest.raises(OptionError, match="at most 9, .* 10 positions. .* = 90"):
        DIENOptions(long_seq_length=90).for_history(10)
    with pytest.raises(OptionError, match="`long_seq_length`"):
        SIMOptions(long_seq_length=0).for_history(10)
    DIENOptions(long_seq_length=0).for_history(10)


@pytest.mark.parametrize(
    ("options", "length", "long"),
    [
        (SIMOptions(), 1000, 990),
        (DIENOptions(), 1000, 990),
        (SIMOptions(), 6, 1),
        (DIENOptions(), 6, 0),
        (SIMOptions(short_history="none"), 1000, 1000),
        (SIMOptions(long_seq_length=90), 1000, 90),
        (SIMOptions(short_history="none", long_seq_length=90), 1000, 90),
    ],
)
def test_a_long_history_is_all_but_the_newest_ten_if_nobody_says_otherwise(options, length, long):
    assert options.for_history(length).long_seq_length == long
    assert options.for_history(length).for_history(length) == options.for_history(length)


def test_what_is_read_one_by_one_is_no_longer_than_the_histories():
    assert DINOptions().recent_within(10) == DINOptions(recent_length=10).recent_within(10) == 10
    with pytest.raises(OptionError, match="`recent_length` should be at most 10"):
        DINOptions(recent_length=11).recent_within(10)


def test_a_history_of_one_position_has_no_long_part():
    with pytest.raises(OptionError, match="at most 0, .* 1 positions"):
        SIMOptions().for_history(1)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"auxiliary_loss": False, "aux_mlp_dims": (8,)}, "aux_mlp_dims"),
        ({"short_history": "attention", "auxiliary_loss": False}, "auxiliary_loss"),
    ],
)
def test_options_of_an_auxiliary_loss_that_is_not_there_are_refused(given, refused):
    with pytest.raises(OptionError, match=f"`{refused}` should be given"):
        SIMOptions.parse(given)
