"""One user or many, with many candidates each: the scores of the plain batch."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import build_kind

from merlin_sim.models import DINModel
from merlin_sim.models.din import DINBlock

pytestmark = pytest.mark.slow

CLOSE = {"rtol": 2e-5, "atol": 2e-6}


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
        elif "positive_history" in map(str, column.tags) or column.name == "intervals":
            values = np.arange(history, dtype=np.float32) * 3.0
            if most:
                values = chance.integers(1, most + 1, history)
            one[column.name + "__values"] = values
            one[column.name + "__offsets"] = np.array([0, history], np.int32)
            plain[column.name + "__values"] = np.tile(values, candidates)
            offsets = np.arange(candidates + 1, dtype=np.int32) * history
            plain[column.name + "__offsets"] = offsets
    return [{k: tf.constant(v) for k, v in columns.items()} for columns in (one, plain)]


def assert_scores(model, one, plain):
    np.testing.assert_allclose(model.forward(one).logits, model.forward(plain).logits, **CLOSE)


@pytest.mark.filterwarnings("ignore:.*the newest 10 are kept:UserWarning")
@pytest.mark.parametrize(
    ("kind", "form", "candidates", "history"),
    [
        ("din", {}, 1, 5),
        ("din_separate", {}, 7, 14),
        ("sim", {"users": (9, 4)}, 7, 14),
        *(("sim", {"intervals": True}, 5, history) for history in (0, 7, 10)),
    ],
)
def test_the_scores_of_one_user_are_those_of_the_plain_batch(
    kind, form, candidates, history, make_schema
):
    schema = make_schema(**form)
    assert_scores(build_kind(kind, schema), *make_request(schema, candidates, history))


@pytest.mark.parametrize("kind", ["din", "dien", "sim", "sim_hard", "eta", "sdim", "twin", "stca"])
def test_users_with_as_many_candidates_each(kind, built, schema):
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
    assert_scores(built(kind), users, plain)
    none, _ = make_request(schema, 0, 5)
    assert built(kind).forward(none).logits.shape == (0, 1)


@pytest.mark.parametrize("kind", ["sim_hard", "din_counts", "twin_separate"])
def test_in_a_graph_that_knows_neither_users_nor_candidates(kind, built, schema):
    one, plain = make_request(schema, 7, 5)
    signature = {n: tf.TensorSpec([None] * c.shape.rank, c.dtype) for n, c in one.items()}

    @tf.function(input_signature=[signature], autograph=False)
    def score(columns):
        return built(kind).forward(columns).logits

    np.testing.assert_allclose(score(one), built(kind).forward(plain).logits, **CLOSE)


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
    assert_scores(model, one, plain)
    model_of_parent = DINModel.from_schema(schema, embedding_dim=4)
    model_of_parent.set_weights(model.get_weights())
    expected = model.forward(plain).logits
    assert np.abs(model_of_parent.forward(plain).logits - expected).max() > 1e-4
