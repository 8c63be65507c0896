"""Beyond the published model: hard search, heads, time intervals."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import OptionError, SIMModel, build_model

SMALL = {"embedding_dim": 4, "long_seq_length": 6, "top_k": 3}


def make(schema, **options):
    tf.keras.utils.set_random_seed(1)
    return SIMModel.from_schema(schema, **SMALL, **options)


def test_hard_search_keeps_the_targets_category(make_schema, make_columns, as_batch):
    schema = make_schema(items=(20, 2))
    columns = make_columns(schema, 16, lengths=[10] * 16)
    batch, label = as_batch(columns, 10, ragged=True)
    model = make(schema, search="hard", category_feature="item_1")
    features = model.body.features(batch)
    read = model.body.target_and_history(features, model.body.embed(features))
    found = model.body.search_unit(*read)
    long = np.stack(columns["item_1_hist"])[:, :6]
    for row in range(16):
        same = np.flatnonzero(long[row] == columns["item_1"][row])
        assert np.flatnonzero(found.selected[row]).tolist() == same[-3:].tolist()
    losses, _ = model.compute_step(batch, label)
    assert np.isfinite(losses.total_loss)


def test_the_category_is_a_target_item_feature(make_schema):
    with pytest.raises(OptionError, match="`category_feature` should be 'item_0' or 'item_1'"):
        make(make_schema(), search="hard", category_feature="user_0")


@pytest.mark.slow
def test_dropout_reaches_the_auxiliary_network_where_it_is_published(
    make_schema, make_columns, as_batch
):
    schema = make_schema()
    batch, label = as_batch(make_columns(schema, 16, lengths=[10] * 16), 10, ragged=True)
    model = make(schema, dropout_rate=0.5)
    calm, dropped = (
        float(model.compute_step(batch, label, training=training)[0].dien_aux_loss)
        for training in (False, True)
    )
    assert calm != dropped
    assert make(schema).body.auxiliary.dropout is None
    small = {"embedding_dim": 4, "long_seq_length": 6, "dropout_rate": 0.5}
    for kind, more in (("dien", {}), ("twin", {"short_history": "dien", "top_k": 3})):
        other = build_model(kind, schema, **small, **more)
        assert other.body.auxiliary.dropout is None


@pytest.mark.slow
def test_time_intervals_are_used_where_they_are(make_schema, make_columns, as_batch):
    schema = make_schema(intervals=True)
    batch, label = as_batch(make_columns(schema, 8, lengths=[10] * 8), 10, ragged=True)
    model = make(schema)
    assert model.body.attention_unit.attended_dim(8) == 4 * (8 + 4)
    later = {**batch, "intervals__values": batch["intervals__values"] * 1000}
    assert np.abs(model(later) - model(batch)).max() > 0
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(batch, label)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    # A softmax over positions is the same whatever is added to all of them.
    without = model.body.interest.activation_unit.dense[-1].bias.ref()
    pairs = zip(gradients, model.trainable_variables, strict=True)
    felt = {variable.ref(): gradient for gradient, variable in pairs if variable.ref() != without}
    assert all(np.any(tf.convert_to_tensor(gradient)) for gradient in felt.values())
    missing = {name: column for name, column in batch.items() if "intervals" not in name}
    with pytest.raises(OptionError, match="missing columns: intervals"):
        model(missing)


@pytest.mark.slow
def test_without_time_intervals_nothing_changes(make_schema, make_columns, as_batch):
    with_times = make_columns(make_schema(intervals=True), 8)
    schema = make_schema()
    batch, _ = as_batch(with_times, 10, ragged=True)
    model = make(schema)
    plain = {name: column for name, column in batch.items() if "intervals" not in name}
    np.testing.assert_array_equal(model(batch), model(plain))
    assert len(model.trainable_variables) == len(make(schema, heads=2).trainable_variables) - 2


@pytest.mark.parametrize("heads", [1, 3])
def test_heads_widen_the_attended_interest(heads, make_schema, make_columns, as_batch):
    schema = make_schema()
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    model = make(schema, heads=heads)
    assert model.body.attention_unit.attended_dim(8) == heads * 8
    assert np.isfinite(model.compute_step(batch, label)[0].total_loss)


def test_one_item_feature_and_no_user_feature(make_schema, make_columns, as_batch):
    schema = make_schema(users=(), items=(20,))
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    assert np.isfinite(make(schema).compute_step(batch, label)[0].total_loss)
