"""One user or many, with many candidates each, and numbers, vectors and lists beside the ids."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import OPTIONS, build_kind
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.foundation.batch_names import HISTORY_END
from merlin_sim.models.blocks.checks import OptionError

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
    ("kind", "form", "requests"),
    [
        ("din_counts", {}, [(1, 5)]),
        ("sim", {"users": (9, 4), "intervals": True}, [(7, 14), (5, 0), (5, 10)]),
    ],
)
def test_the_scores_of_one_user_are_those_of_the_plain_batch(kind, form, requests, make_schema):
    schema = make_schema(**form)
    model = build_kind(kind, schema)
    for candidates, history in requests:
        assert_scores(model, *make_request(schema, candidates, history))
    none, _ = make_request(schema, 0, 5)
    assert model.forward(none).logits.shape == (0, 1)


def test_in_a_graph_that_knows_neither_users_nor_candidates(schema):
    model = build_kind("sim_hard", schema, short_history="attention", history_counts=True)
    one, plain = make_request(schema, 7, 5)
    signature = {n: tf.TensorSpec([None] * c.shape.rank, c.dtype) for n, c in one.items()}

    @tf.function(input_signature=[signature], autograph=False)
    def score(columns):
        return model.forward(columns).logits

    np.testing.assert_allclose(score(one), model.forward(plain).logits, **CLOSE)


WIDTH, LONGEST, GENRES = 3, 2, 5
BESIDE = ("age", "taste", "price", "look", "genres")


def with_numbers(schema):
    """Numbers and a vector of the user, and of the target item; a list of the target item."""
    domain = {"domain": {"min": 0, "max": GENRES, "name": "genres"}}

    def numbers(name, *tags, width=None):
        dims = None if width is None else (None, width)
        kinds = [*tags, Tags.CONTINUOUS]
        return ColumnSchema(name, dtype="float32", tags=kinds, dims=dims)

    return schema + Schema(
        [
            numbers("age", "user_numerical", Tags.USER),
            numbers("taste", "user_numerical", Tags.USER, width=WIDTH),
            numbers("price", "target_item_numerical", Tags.ITEM),
            numbers("look", "target_item_numerical", Tags.ITEM, width=WIDTH),
            ColumnSchema(
                "genres",
                dtype="int64",
                tags=["target_item_lists", Tags.ITEM, Tags.CATEGORICAL],
                dims=(None, LONGEST),
                properties=domain,
            ),
        ]
    )


def batch_of(users, candidates, seed=0, length=10):
    """A batch of users x candidates, and the same as plain rows; the last user has no history."""
    random = np.random.default_rng(seed)

    def floats(*shape):
        return random.normal(size=shape).astype(np.float32)

    history = {
        f"item_{i}{part}": random.integers(1, most + 1, (users, length))
        for i, most in enumerate((20, 6))
        for part in ("_hist", "_neg_hist")
    }
    for values in history.values():
        values[-2:, :4], values[-1] = 0, 0
    user = {
        "user_0": random.integers(1, 10, users),
        "age": floats(users),
        "taste": floats(users, WIDTH),
        **history,
    }
    target = {
        "item_0": random.integers(1, 21, (users, candidates)),
        "item_1": random.integers(1, 7, (users, candidates)),
        "price": floats(users, candidates),
        "look": floats(users, candidates, WIDTH),
        "genres": random.integers(0, GENRES + 1, (users, candidates, LONGEST)),
    }
    rows = {name: np.repeat(values, candidates, axis=0) for name, values in user.items()}
    rows |= {n: v.reshape(users * candidates, *v.shape[2:]) for n, v in target.items()}
    grouped = {**user, **target, HISTORY_END: np.full((users, candidates), length, np.int32)}
    return [{n: tf.constant(v) for n, v in columns.items()} for columns in (grouped, rows)]


@pytest.fixture(scope="module")
def built_with_numbers(make_schema):
    """STCA reads its numbers in pieces."""
    pieces = {"stca": {"number_pieces": 5}}
    schema = with_numbers(make_schema())
    return functools.cache(lambda kind: build_kind(kind, schema, **pieces.get(kind, {})))


@pytest.mark.parametrize("kind", ["sim", "stca"])
def test_every_one_of_them_counts_and_gets_its_gradient(kind, built_with_numbers):
    model = built_with_numbers(kind)
    _, rows = batch_of(3, 2)
    before = model.forward(rows).logits.numpy()
    for name in BESIDE:
        values = rows[name]
        changed = (values + 1) % (GENRES + 1) if name == "genres" else values + 1.0
        after = model.forward({**rows, name: changed}).logits.numpy()
        assert np.abs(after - before).max() > 1e-3, name
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(rows, tf.ones(6))
    table = next(v for v in model.trainable_variables if "genres" in v.name)
    gradient = tape.gradient(losses[0], table)
    assert float(tf.norm(tf.convert_to_tensor(gradient))) > 0


def test_pieces_are_of_single_numbers_not_of_vectors(make_schema):
    schema = with_numbers(make_schema())
    whole, cut = (build_kind("din", schema, number_pieces=n).body for n in (None, 4))
    assert cut.classified_dim == whole.classified_dim + 2 * (4 - 1)
    rows = batch_of(3, 2)[1]
    rows["price"] = tf.fill([6], 4.5)
    rows["age"] = tf.fill([6], -1.5)
    features = cut.features(rows)
    *_, of_target, of_user = cut.further(features, cut.look_up(features.lists, False))
    for read, vector, cut_to in (
        (of_target, "look", [1, 0.5, 0, 0]),
        (of_user, "taste", [-1.5, 0, 0, 0]),
    ):
        assert read.shape == (6, 1, 4 + WIDTH)
        np.testing.assert_array_equal(read[:, 0, :4], [cut_to] * 6)
        np.testing.assert_array_equal(read[:, 0, 4:], rows[vector])
    names = [name for name in schema.column_names if name not in ("age", "price")]
    for without, received in (
        (schema.select_by_name(names), "taste, look"),
        (make_schema(), "none"),
    ):
        with pytest.raises(OptionError, match=f"= 4, and of numbers and vectors {received}"):
            build_kind("din", without, number_pieces=4)


@pytest.mark.parametrize("kind", [kind for kind in OPTIONS if "_" not in kind])
def test_users_x_candidates_get_the_scores_of_their_rows(kind, built_with_numbers):
    """Also where what belongs to the interaction differs between candidates."""
    grouped, rows = batch_of(4, 3)
    _, others = batch_of(12, 1, seed=1)
    for of_interaction in ((), ("taste", "age", "user_0")):
        for name in of_interaction:
            rows[name] = others[name]
            grouped[name] = tf.reshape(others[name], [4, 3, *others[name].shape[1:]])
        expected = built_with_numbers(kind).forward(rows).logits.numpy()
        assert np.ptp(expected.reshape(4, 3), axis=1).min() > 1e-3
        without_ends = {n: c for n, c in grouped.items() if n != HISTORY_END}
        for columns in (grouped, without_ends):
            logits = built_with_numbers(kind).forward(columns).logits
            np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_columns_as_merlins_loader_gives_them(built_with_numbers):
    def logits(columns):
        return built_with_numbers("sim").forward(columns).logits

    _, rows = batch_of(4, 1)
    as_merlin = dict(rows)
    for name in ("look", "genres", "taste"):
        as_merlin[name] = rows[name][..., tf.newaxis]
    for name in ("age", "price"):
        as_merlin[name] = rows[name][:, tf.newaxis]
    np.testing.assert_allclose(logits(as_merlin), logits(rows), atol=1e-6)
    # A list's order does not matter, and zeros are none.
    left, right, twice = (
        {**rows, "genres": tf.constant([genres] * 4, tf.int64)}
        for genres in ([0, 3], [3, 0], [3, 3])
    )
    for columns in (right, twice):
        np.testing.assert_allclose(logits(columns), logits(left), atol=1e-6)
