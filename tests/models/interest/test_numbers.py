"""Numbers, vectors and lists beside ids: every model reads them in its last classifier."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import MODELS, build_kind
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.foundation.batch_names import HISTORY_END
from merlin_sim.models.interest_channels import Channels

pytestmark = pytest.mark.slow

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
    """A batch of users x candidates, and the same as plain rows."""
    random = np.random.default_rng(seed)

    def floats(*shape):
        return random.normal(size=shape).astype(np.float32)

    history = {
        f"item_{i}{part}": random.integers(1, most + 1, (users, length))
        for i, most in enumerate((20, 6))
        for part in ("_hist", "_neg_hist")
    }
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
def built(make_schema):
    return functools.cache(lambda kind: build_kind(kind, with_numbers(make_schema())))


def test_the_channels_are_told_by_their_tags(make_schema):
    channels = Channels.read(with_numbers(make_schema()))
    assert channels.user_numerical == ("age", "taste")
    assert channels.numbers_dim(channels.user_numerical) == 1 + WIDTH
    assert channels.target_numerical == ("price", "look") and channels.target_lists == ("genres",)
    assert set(BESIDE) <= set(channels.served) and "genres" in channels.categorical
    plain = Channels.read(make_schema())
    assert plain.user_numerical == plain.target_numerical == ()


@pytest.mark.parametrize("kind", ["sim", "stca"])
def test_every_one_of_them_counts_and_gets_its_gradient(kind, built):
    model = built(kind)
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


@pytest.mark.parametrize("of_interaction", [(), ("taste", "age", "user_0")], ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_users_x_candidates_get_the_scores_of_their_rows(kind, of_interaction, built):
    """Also where what belongs to the interaction differs between candidates."""
    grouped, rows = batch_of(3, 4)
    _, others = batch_of(12, 1, seed=1)
    for name in of_interaction:
        rows[name] = others[name]
        grouped[name] = tf.reshape(others[name], [3, 4, *others[name].shape[1:]])
    expected = built(kind).forward(rows).logits.numpy()
    assert np.ptp(expected.reshape(3, 4), axis=1).min() > 1e-3
    np.testing.assert_allclose(built(kind).forward(grouped).logits, expected, atol=1e-5)
    del grouped[HISTORY_END]
    np.testing.assert_allclose(built(kind).forward(grouped).logits, expected, atol=1e-5)


def test_columns_as_merlins_loader_gives_them(built):
    _, rows = batch_of(4, 1)
    as_merlin = dict(rows)
    for name in ("look", "genres", "taste"):
        as_merlin[name] = rows[name][..., tf.newaxis]
    for name in ("age", "price"):
        as_merlin[name] = rows[name][:, tf.newaxis]
    expected = built("sim").forward(rows).logits.numpy()
    np.testing.assert_allclose(built("sim").forward(as_merlin).logits, expected, atol=1e-6)
    # A list's places do not matter, and zeros are none.
    left, right, twice = (
        {**rows, "genres": tf.constant([genres] * 4, tf.int64)}
        for genres in ([0, 3], [3, 0], [3, 3])
    )
    expected = built("sim").forward(left).logits.numpy()
    for columns in (right, twice):
        np.testing.assert_allclose(built("sim").forward(columns).logits, expected, atol=1e-6)
