from __future__ import annotations

import pytest
from merlin.schema import Schema

from merlin_sim.models import OptionError
from merlin_sim.models.interest.interest_channels import Channels


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
