"""ETA, SDIM and TWIN: their options, and what of them is drawn and never trained."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import (
    ETAOptions,
    OptionError,
    SDIMOptions,
    SIMModel,
    SIMOptions,
    TWINOptions,
    build_model,
)
from merlin_sim.models.saving import named_variables

OPTIONS = {
    "eta": {"top_k": 3, "hash_bits": 16},
    "sdim": {"hashes": 8, "bits_per_hash": 2},
    "twin": {"top_k": 3},
}
PROJECTION = "body/search_unit/projection/projection"
every_model = pytest.mark.parametrize("model_type", OPTIONS)


def build(model_type, schema, **options):
    sizes = {"embedding_dim": 4, "long_seq_length": 6, "stage_two_mlp_dims": (8,)}
    return build_model(model_type, schema, **{**sizes, **OPTIONS[model_type], **options})


def test_the_defaults_are_near_the_papers():
    eta, sdim, twin = ETAOptions(), SDIMOptions(), TWINOptions()
    assert (eta.top_k, eta.hash_bits, twin.top_k) == (48, 64, 100)
    assert (sdim.hashes, sdim.bits_per_hash, sdim.collision_counts) == (32, 4, False)
    for options in (eta, sdim, twin):
        assert not options.stage_one and options.short_history == "attention"
        assert type(options).parse(options.to_dict()) == options


@pytest.mark.parametrize(
    ("cls", "option", "value"),
    [
        (ETAOptions, "top_k", 0),
        (ETAOptions, "hash_bits", 0),
        (ETAOptions, "heads", None),
        (SDIMOptions, "hashes", 0),
        (SDIMOptions, "bits_per_hash", 2.5),
        (SDIMOptions, "collision_counts", 1),
        (TWINOptions, "top_k", -1),
        (TWINOptions, "time_buckets", 0),
        (TWINOptions, "stage_one", "yes"),
        (SIMOptions, "short_history", "gru"),
        (ETAOptions, "stage_one_mlp_dims", (8,)),
        (ETAOptions, "aux_mlp_dims", (8,)),
    ],
)
def test_every_option_is_checked_also_against_the_others(cls, option, value):
    with pytest.raises(OptionError, match=f"`{option}`"):
        cls.parse({option: value})


def test_without_a_short_history_all_may_be_the_long_one():
    TWINOptions(short_history="none", long_seq_length=10).for_history(10)
    with pytest.raises(OptionError, match="at most 10, .* = 11"):
        TWINOptions(short_history="none", long_seq_length=11).for_history(10)
    with pytest.raises(OptionError, match="at most 9"):
        TWINOptions(long_seq_length=10).for_history(10)


@pytest.mark.parametrize("model_type", ["eta", "sdim"])
def test_the_projection_is_kept_with_the_weights(model_type, make_schema, make_columns, as_batch):
    schema = make_schema(ragged=False)
    batch, label = as_batch(make_columns(schema, 5, lengths=[0, 2, 9, 10, 10]), 10, ragged=False)
    model = build(model_type, schema)
    drawn = named_variables(model)[PROJECTION].numpy()
    assert drawn.std() > 0.5 and drawn.tobytes() not in [
        weight.numpy().tobytes() for weight in model.trainable_variables
    ]
    model.compile("adam", run_eagerly=True)
    model.fit(batch, label, verbose=0)
    np.testing.assert_array_equal(named_variables(model)[PROJECTION], drawn)
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert np.any(named_variables(copy)[PROJECTION] != drawn), "a new model draws its own"
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(batch), model(batch))


def test_twin_has_one_attention_for_both_stages(make_schema):
    model = build("twin", make_schema())
    names = [name for name in named_variables(model) if "target_attention" in name]
    assert len(names) == 3
    assert model.body.search_unit.attention is model.body.attention_unit.attention


def test_twin_weighs_times_where_there_are_some(make_schema, make_columns, as_batch):
    schema = make_schema(intervals=True)
    batch, label = as_batch(make_columns(schema, 8, lengths=[10] * 8), 10, ragged=True)
    model = build("twin", schema)
    later = {**batch, "intervals__values": batch["intervals__values"] * 1000}
    assert np.abs(model(later) - model(batch)).max() > 0
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(batch, label)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    assert all(np.any(tf.convert_to_tensor(gradient)) for gradient in gradients)


def test_sim_without_first_stage_and_dien_needs_no_negatives(make_schema, make_columns, as_batch):
    batch, label = as_batch(make_columns(make_schema(), 5), 10, ragged=True)
    served = {name: column for name, column in batch.items() if "neg" not in name}
    frame = {"stage_one": False, "short_history": "attention"}
    model = SIMModel.from_schema(make_schema(), embedding_dim=4, long_seq_length=6, **frame)
    losses, _ = model.compute_step(served, label)
    assert losses.dien_aux_loss == 0 and losses.total_loss == losses.classification_loss
    assert model.training_columns == (model.label, *model.served_columns)


@pytest.mark.slow
@every_model
def test_saved_and_loaded_it_predicts_the_same(
    model_type, tmp_path, make_schema, make_columns, as_batch
):
    schema = make_schema()
    batch, _ = as_batch(make_columns(schema, 5, lengths=[0, 1, 4, 9, 10]), 10, ragged=True)
    served = {name: column for name, column in batch.items() if "neg" not in name}
    model = build(model_type, schema)
    model.save(tmp_path / "saved")
    signature = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    (by_signature,) = signature(**served).values()
    loaded = type(model).load(tmp_path / "saved")
    for predictions in (by_signature, loaded(batch)):
        np.testing.assert_allclose(predictions, model(batch), rtol=1e-6)
