"""SIM, ETA, SDIM and TWIN beyond the published SIM: searches, heads, times, what is drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import OptionError, SIMModel, build_model
from merlin_sim.models.saving import named_variables

PROJECTION = "body/search_unit/projection/projection"


def make(schema, kind="sim", **options):
    tf.keras.utils.set_random_seed(1)
    small = {"embedding_dim": 4, "long_seq_length": 6}
    if kind != "sdim":
        small["top_k"] = 3
    return build_model(kind, schema, **small, **options)


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


@pytest.mark.slow
def test_dropout_reaches_the_auxiliary_network_where_it_is_published(
    schema, make_columns, as_batch
):
    batch, label = as_batch(make_columns(schema, 16, lengths=[10] * 16), 10, ragged=True)
    model = make(schema, dropout_rate=0.5)
    calm, dropped = (
        float(model.compute_step(batch, label, training=training)[0].dien_aux_loss)
        for training in (False, True)
    )
    assert calm != dropped
    assert make(schema).body.auxiliary.dropout is None
    twin = make(schema, "twin", dropout_rate=0.5, short_history="dien")
    dien = build_model("dien", schema, long_seq_length=6, dropout_rate=0.5)
    assert twin.body.auxiliary.dropout is dien.body.auxiliary.dropout is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim", "twin"])
def test_time_intervals_are_used_where_they_are(kind, schema, make_schema, make_columns, as_batch):
    with_times = make_schema(intervals=True)
    batch, label = as_batch(make_columns(with_times, 8, lengths=[10] * 8), 10, ragged=True)
    model = make(with_times, kind)
    later = {**batch, "intervals__values": batch["intervals__values"] * 1000}
    assert np.abs(model(later) - model(batch)).max() > 0
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(batch, label)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    pairs = zip(gradients, model.trainable_variables, strict=True)
    felt = {variable.ref(): gradient for gradient, variable in pairs}
    if kind == "sim":
        assert model.body.attention_unit.attended_dim(8) == 4 * (8 + 4)
        # A softmax over positions is the same whatever is added to all of them.
        del felt[model.body.interest.activation_unit.dense[-1].bias.ref()]
    assert all(np.any(tf.convert_to_tensor(gradient)) for gradient in felt.values())
    plain = {name: column for name, column in batch.items() if "intervals" not in name}
    with pytest.raises(OptionError, match="missing columns: intervals"):
        model(plain)
    without = make(schema, kind)
    np.testing.assert_array_equal(without(batch), without(plain))


@pytest.mark.slow
def test_heads_widen_the_attended_interest(make_schema, make_columns, as_batch):
    schema = make_schema(users=(), items=(20,))  # one item feature and no user feature
    batch, label = as_batch(make_columns(schema, 4), 10, ragged=True)
    plain = make(schema)
    for heads in (1, 3):
        model = make(schema, heads=heads)
        assert model.body.attention_unit.attended_dim(4) == heads * 4
        assert np.isfinite(model.compute_step(batch, label)[0].total_loss)
        assert len(model.trainable_variables) == len(plain.trainable_variables) + 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eta", "sdim"])
def test_the_projection_is_kept_with_the_weights(kind, make_schema, make_columns, as_batch):
    schema = make_schema(ragged=False)
    batch, label = as_batch(make_columns(schema, 5, lengths=[0, 2, 9, 10, 10]), 10, ragged=False)
    model = make(schema, kind)
    drawn = named_variables(model)[PROJECTION].numpy()
    assert drawn.std() > 0.5 and drawn.tobytes() not in [
        weight.numpy().tobytes() for weight in model.trainable_variables
    ]
    model.compile("adam", run_eagerly=True)
    model.train_step((batch, label))
    np.testing.assert_array_equal(named_variables(model)[PROJECTION], drawn)
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert np.any(named_variables(copy)[PROJECTION] != drawn), "a new model draws its own"
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(batch), model(batch))


def test_twin_has_one_attention_for_both_stages(schema):
    model = make(schema, "twin")
    names = [name for name in named_variables(model) if "target_attention" in name]
    assert len(names) == 3
    assert model.body.search_unit.attention is model.body.attention_unit.attention


def test_sim_without_first_stage_and_dien_needs_no_negatives(schema, make_columns, as_batch):
    batch, label = as_batch(make_columns(schema, 5), 10, ragged=True)
    served = {name: column for name, column in batch.items() if "neg" not in name}
    frame = {"stage_one": False, "short_history": "attention"}
    model = SIMModel.from_schema(schema, embedding_dim=4, long_seq_length=6, **frame)
    losses, _ = model.compute_step(served, label)
    assert losses.dien_aux_loss == 0 and losses.total_loss == losses.classification_loss
    assert model.training_columns == (model.label, *model.served_columns)
