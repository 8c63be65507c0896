"""STCA's layers: the paper's formulas, in either form and in parts of the users."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import stca
from merlin_sim.models.stca import StackedCrossAttention, in_parts_of_users

USERS, COUNT, LENGTH, DIM = 6, 4, 7, 8


@pytest.fixture
def given(arrays):
    """Candidates, history, mask, times of two windows and positions of one."""
    random = np.random.default_rng(0)
    times = tf.constant(random.exponential(20.0, [USERS, 2, LENGTH]), tf.float32)
    positions_ago = tf.broadcast_to(tf.range(LENGTH, 0, -1), [USERS, 1, LENGTH])
    vectors = arrays.vectors(USERS, COUNT, DIM), arrays.vectors(USERS, LENGTH, DIM)
    return (*vectors, arrays.masks(USERS, COUNT, LENGTH), times, positions_ago)


def make_attention(layers, given):
    tf.keras.utils.set_random_seed(8)  # with little rounding: no vector is nearly the same number
    made = StackedCrossAttention(layers, 2, 4, swiglu_dim=12, time_buckets=4, position_buckets=5)
    made(*given)
    for variable in made.trainable_variables:  # away from ones, zeros and equal rows
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return made


def assert_same(ours, theirs):
    for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        error = np.linalg.norm(np.subtract(one, other))
        assert error <= 1e-5 * np.linalg.norm(other) + 1e-6


def reference(attention, candidate, history, mask, times, positions_ago):
    """The formulas for one candidate, in numpy."""
    w = {name: kernel.numpy().astype(np.float64) for name, kernel in attention.kernels.items()}

    def normed_swiglu(x, name):
        gate = x @ w[f"{name}_gate"]
        x = (gate / (1 + np.exp(-gate)) * (x @ w[f"{name}_up"])) @ w[f"{name}_down"]
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + stca.EPSILON)
        return x * w[f"{name}_scale"] + w[f"{name}_offset"]

    of_times, of_places = attention.of_times, attention.of_places
    bias = of_times.table.numpy()[np.minimum(np.log2(1 + times).astype(int), 3)]
    bias = bias + of_places.table.numpy()[np.minimum(np.log2(1 + positions_ago).astype(int), 4)]
    found = []
    for i in range(attention.layers):
        fused = np.concatenate([*found, candidate]) @ w[f"fuse_{i}"] if i else candidate
        query = normed_swiglu(fused, f"query_{i}") @ w[f"to_query_{i}"]
        positions = normed_swiglu(history, f"history_{i}")
        keys, values = (positions @ w[f"{kernel}_{i}"] for kernel in ("to_key", "to_value"))
        heads = []
        for head in range(attention.heads):
            part = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
            scores = keys[:, part] @ query[part] / np.sqrt(attention.head_dim)
            scores += bias[:, i * attention.heads + head]
            weights = np.where(mask, np.exp(scores - scores.max()), 0)
            heads.append(weights @ values[:, part] / max(weights.sum(), 1e-300))
        found.append(np.concatenate(heads))
    return np.concatenate(found)


@pytest.mark.slow
def test_it_is_the_papers_formulas_with_keys_and_without(given, monkeypatch):
    attention = make_attention(3, given)
    # A position costs 2 x 8 x 8 products and 2 x 8 a candidate, or 2 x 2 heads x 8 a candidate.
    assert [attention.makes_keys(count, DIM) for count in (1, 8, 9, 1000)] == [0, 0, 1, 1]
    candidates, history, mask, times, positions_ago = (part.numpy() for part in given)
    gradients = []
    for makes_keys in (True, False):
        monkeypatch.setattr(attention, "makes_keys", lambda *_, found=makes_keys: found)
        with tf.GradientTape() as tape:
            ours = attention(*given)
            loss = tf.reduce_sum(ours**2)
        found = tape.gradient(loss, attention.trainable_variables)
        gradients.append([*map(tf.convert_to_tensor, found)])
        for user, index in np.ndindex(USERS, COUNT):
            expected = reference(
                attention,
                *(candidates[user, index], history[user], mask[user, index]),
                *(times[user, index * 2 // COUNT], positions_ago[user, 0]),
            )
            np.testing.assert_allclose(ours[user, index], expected, rtol=1e-4, atol=1e-5)
        assert not ours[0].numpy().any(), "an empty history"
    assert_same(*gradients)


@pytest.mark.slow
def test_a_graph_that_does_not_know_how_many_candidates_takes_both(given):
    given = (*given[:3], given[3][:, :1], given[4])
    attention = make_attention(1, given)
    many = (tf.repeat(given[0], 4, axis=1), given[1], tf.repeat(given[2], 4, axis=1), *given[3:])
    shapes = [
        [None, None, DIM],
        [None, LENGTH, DIM],
        [None, None, LENGTH],
        *[[None, 1, LENGTH]] * 2,
    ]
    specs = [tf.TensorSpec(s, t.dtype) for s, t in zip(shapes, given, strict=True)]
    in_graph = tf.function(attention, input_signature=specs, autograph=False)
    for batch in (given, many):
        np.testing.assert_allclose(in_graph(*batch), attention(*batch), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_as_many_users_are_taken_at_once_as_have_so_many_numbers_in_between(given, monkeypatch):
    asked = []

    def noting(function, weights, batch, users_at_once):
        asked.append(users_at_once)
        return in_parts_of_users(function, weights, batch, users_at_once)

    attention = make_attention(2, given)
    whole = attention(*given)
    monkeypatch.setattr(stca, "in_parts_of_users", noting)
    of_a_user = LENGTH * 2 * (3 * 12 + 4 * DIM + 3 * COUNT * 2)  # in two layers of two heads
    for numbers in (4 * of_a_user, 4 * of_a_user - 1):
        monkeypatch.setattr(stca, "NUMBERS_PER_PART", numbers)
        assert_same(attention(*given), whole)
    assert asked == [4, 3]


def computed(users_at_once, weight, vectors, positions_ago, taken=None):
    """A result of each user, and its gradients; ``taken`` notes how many users came at once."""

    def result_of(weights, batch):
        if taken is not None:
            users = tf.shape(batch["candidates"])[0]
            tf.numpy_function(lambda count: taken.append(int(count)), [users], [])
        moved = tf.tanh(tf.matmul(batch["candidates"], weights["kernel"]))
        return moved * tf.cast(batch["places"], tf.float32)[..., tf.newaxis]

    with tf.GradientTape() as tape:
        tape.watch([weight, vectors])
        batch = {"candidates": vectors, "places": positions_ago}
        result = in_parts_of_users(result_of, {"kernel": weight}, batch, users_at_once)
        loss = tf.reduce_sum(result**2)
    return [result, *tape.gradient(loss, [weight, vectors])]


@pytest.mark.parametrize(
    ("form", "at_once", "expected"),
    [
        ("eager", 3, [[3, 3] * 2, [2], [1]]),  # the last of five is with a filler
        ("graph", 2, [[2] * 6, [2], [1]]),  # twice where there are parts
        ("XLA", 2, None),
    ],
)
def test_parts_of_the_users_have_the_same_results_and_gradients(form, at_once, expected, arrays):
    """Eagerly, and in graphs that do not know how many users there are."""
    given = [arrays.vectors(3, 2), arrays.vectors(5, 2, 3), arrays.ids(4, 5, 2)]
    taken, received = None if form == "XLA" else [], []

    def compute(*given):
        return computed(at_once, *given, taken=taken)

    if form != "eager":
        specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in given]
        compute = tf.function(
            compute, input_signature=specs, jit_compile=form == "XLA", autograph=False
        )
    for users in (5, 2, 1):
        batch = [given[0], *(part[:users] for part in given[1:])]
        assert_same(compute(*batch), computed(users, *batch))
        received.append(taken and list(taken))
        if taken:
            taken.clear()
    assert received == (expected or [None] * 3)
