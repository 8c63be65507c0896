from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import Schema

from merlin_sim.models import DINModel, OptionError
from merlin_sim.models.interest_channels import Channels


def test_channels_are_read_from_tags(make_schema):
    channels = Channels.read(make_schema(intervals=True))
    assert channels.label == "label"
    assert channels.user == ("user_0",)
    assert channels.target_item == ("item_0", "item_1")
    assert channels.positive == ("item_0_hist", "item_1_hist")
    assert channels.negative == ("item_0_neg_hist", "item_1_neg_hist")
    assert channels.time_intervals == "intervals"
    assert channels.history_length == 10
    assert channels.served == (
        "user_0",
        "item_0",
        "item_1",
        "item_0_hist",
        "item_1_hist",
        "intervals",
    )


def test_users_and_negatives_may_be_missing(make_schema):
    channels = Channels.read(make_schema(users=(), negatives=False))
    assert channels.user == channels.negative == () and channels.time_intervals is None


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
