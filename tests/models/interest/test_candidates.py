"""One user, many candidates: the scores of the plain batch."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import OPTIONS

from merlin_sim.models import DINModel, build_model
from merlin_sim.models.din import DINBlock


def make_request(schema, candidates, history, seed=3):
    """The columns of one user beside [1, candidates], and the same as a plain batch."""
    chance = np.random.default_rng(seed)
    one, plain = {}, {}
    for column in schema:
        most = column.int_domain.max if column.int_domain else None
        if "user_features" in map(str, column.tags):
            one[column.name] = chance.integers(1, most + 1, 1)
            plain[column.name] = np.repeat(one[column.name], candidates)
        elif "target_item_features" in map(str, column.tags):
            plain[column.name] = chance.integers(0, most + 1, candidates)
            one[column.name] = plain[column.name][np.newaxis]
        elif "positive_history" in map(str, column.tags):
            values = chance.integers(1, most + 1, history)
            one[column.name + "__values"] = values
            one[column.name + "__offsets"] = np.array([0, history], np.int32)
            plain[column.name + "__values"] = np.tile(values, candidates)
            offsets = np.arange(candidates + 1, dtype=np.int32) * history
            plain[column.name + "__offsets"] = offsets
    return [{k: tf.constant(v) for k, v in columns.items()} for columns in (one, plain)]


@pytest.fixture(scope="module")
def build(make_schema):
    """Makes each model once: nothing here changes one."""

    @functools.cache
    def build_one(kind, **kwargs):
        tf.keras.utils.set_random_seed(5)
        schema = make_schema(**kwargs)
        model = build_model(kind.split("_")[0], schema, embedding_dim=4, **OPTIONS[kind])
        for variable in model.trainable_variables:  # away from zero biases and equal slopes
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
        return model, schema

    return build_one


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the newest 10 are kept:UserWarning")
@pytest.mark.parametrize(
    ("kind", "candidates", "history"),
    [
        *((kind, 7, 14) for kind in ("din", "dien", "sim", "stca", "din_separate")),
        *((kind, 1, 5) for kind in ("din", "sim")),
    ],
)
def test_the_scores_are_those_of_the_plain_batch(build, kind, candidates, history):
    model, schema = build(kind)
    one, plain = make_request(schema, candidates, history)
    np.testing.assert_allclose(
        model.forward(one).logits, model.forward(plain).logits, rtol=2e-5, atol=2e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "users"),
    [("din", ()), ("sim", (9, 4))],
)
def test_any_number_of_user_features(build, kind, users):
    model, schema = build(kind, users=users)
    one, plain = make_request(schema, 2, 5)
    np.testing.assert_allclose(
        model.forward(one).logits, model.forward(plain).logits, rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize("history", [0, 7, 10])
def test_time_intervals_go_with_the_history(build, history):
    model, schema = build("sim", intervals=True)
    one, plain = make_request(schema, 5, history)
    values = tf.range(history, dtype=tf.float32) * 3.0
    for columns, rows in ((one, 1), (plain, 5)):
        columns["intervals__values"] = tf.tile(values, [rows])
        columns["intervals__offsets"] = tf.range(rows + 1) * history
    np.testing.assert_allclose(
        model.forward(one).logits, model.forward(plain).logits, rtol=2e-5, atol=2e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["sim_hard", "sim_heads", "sim_similarity", "din_counts", "twin_separate"]
)
def test_in_a_graph_that_knows_neither_users_nor_candidates(build, kind):
    model, schema = build(kind)
    one, plain = make_request(schema, 7, 5)
    signature = {n: tf.TensorSpec([None] * c.shape.rank, c.dtype) for n, c in one.items()}

    @tf.function(input_signature=[signature], autograph=False)
    def score(columns):
        return model.forward(columns).logits

    expected = model.forward(plain).logits
    np.testing.assert_allclose(score(one), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["din", "dien", "sim", "sim_hard", "eta", "sdim", "twin", "stca"])
def test_users_with_as_many_candidates_each(build, kind):
    model, schema = build(kind)
    histories = (0, 1, 4, 9, 10)
    requests = [make_request(schema, 3, history, seed=history) for history in histories]
    users, plain = {}, {}
    for together, place, times in ((users, 0, 1), (plain, 1, 3)):
        for name in requests[0][place]:
            parts = [request[place][name] for request in requests]
            together[name] = tf.concat(parts, axis=0)
            if name.endswith("__offsets"):
                lengths = np.repeat(histories, times)
                together[name] = tf.constant(np.cumsum([0, *lengths]), tf.int32)
    np.testing.assert_allclose(
        model.forward(users).logits, model.forward(plain).logits, rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize("kind", ["din", "sim", "sdim", "stca"])
def test_no_candidates_have_no_scores(build, kind):
    model, schema = build(kind)
    one, _ = make_request(schema, 0, 5)
    assert model.forward(one).logits.shape == (0, 1)


def test_in_float16_the_scores_agree_to_its_rounding(make_schema):
    tf.keras.utils.set_random_seed(5)
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = build_model("sim", make_schema(), embedding_dim=4, long_seq_length=6, top_k=3)
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    one, plain = make_request(make_schema(), 7, 9)
    np.testing.assert_allclose(
        model.forward(one).logits, model.forward(plain).logits, rtol=5e-3, atol=5e-3
    )


@tf.keras.utils.register_keras_serializable(package="merlin_sim_tests")
class DoubledBlock(DINBlock):
    """A block of a user's own, which says nothing of candidates."""

    def forward(self, features, training=False, with_objective=False):
        outputs = super().forward(features, training, with_objective)
        return outputs._replace(hidden=2.0 * outputs.hidden)


@tf.keras.utils.register_keras_serializable(package="merlin_sim_tests")
class DoubledModel(DINModel):
    body_type = DoubledBlock


def test_a_block_of_ones_own_has_the_scores_of_its_plain_batch(make_schema):
    schema = make_schema(users=(9, 4))
    model = DoubledModel.from_schema(schema, embedding_dim=4)
    one, plain = make_request(schema, 7, 5)
    expected = model.forward(plain).logits
    np.testing.assert_allclose(model.forward(one).logits, expected, rtol=2e-5, atol=2e-6)
    model_of_parent = DINModel.from_schema(schema, embedding_dim=4)
    model_of_parent.set_weights(model.get_weights())
    assert np.abs(model_of_parent.forward(plain).logits - expected).max() > 1e-4
