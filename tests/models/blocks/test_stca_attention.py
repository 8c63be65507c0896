"""STCA's layers: the paper's formulas, in either form and in parts of the users."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import stca
from merlin_sim.models.stca import StackedCrossAttention

USERS, COUNT, LENGTH, DIM = 6, 4, 7, 8
NUMBERS_OF_A_USER = LENGTH * 2 * (3 * 12 + 4 * DIM + 3 * COUNT * 2)
"""What the two layers of two heads that are tested here have in between."""


@pytest.fixture
def given(arrays):
    """Candidates, history, mask, times of two windows and places of one."""
    random = np.random.default_rng(0)
    times = tf.constant(random.exponential(20.0, [USERS, 2, LENGTH]), tf.float32)
    places = tf.broadcast_to(tf.range(LENGTH, 0, -1), [USERS, 1, LENGTH])
    vectors = arrays.vectors(USERS, COUNT, DIM), arrays.vectors(USERS, LENGTH, DIM)
    return (*vectors, arrays.masks(USERS, COUNT, LENGTH), times, places)


@pytest.fixture
def attention(given):
    return make_attention(2, given)


def make_attention(layers, given):
    tf.keras.utils.set_random_seed(8)  # with little rounding: no vector is nearly the same number
    made = StackedCrossAttention(layers, 2, 4, swiglu_dim=12, time_buckets=4, position_buckets=5)
    made(*given)
    for variable in made.trainable_variables:  # away from ones, zeros and equal rows
        variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
    return made


def computed(attention, given):
    """The result and every gradient."""
    with tf.GradientTape() as tape:
        tape.watch(given[:2])
        result = attention(*given)
        loss = tf.reduce_sum(result**2)
    gradients = tape.gradient(loss, [*given[:2], *attention.trainable_variables])
    return [result, *map(tf.convert_to_tensor, gradients)]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        error = np.linalg.norm(np.subtract(one, other))
        assert error <= 1e-5 * np.linalg.norm(other) + 1e-6


def reference(attention, candidate, history, mask, times, places):
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
    bias = bias + of_places.table.numpy()[np.minimum(np.log2(1 + places).astype(int), 4)]
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


@pytest.mark.parametrize("makes_keys", [True, False])
def test_it_is_the_papers_formulas_with_keys_and_without(makes_keys, given, monkeypatch):
    attention = make_attention(3, given)
    monkeypatch.setattr(attention, "makes_keys", lambda *_: makes_keys)
    ours = attention(*given).numpy()
    candidates, history, mask, times, places = (part.numpy() for part in given)
    for user, place in np.ndindex(USERS, COUNT):
        expected = reference(
            attention,
            *(candidates[user, place], history[user], mask[user, place]),
            *(times[user, place * 2 // COUNT], places[user, 0]),
        )
        np.testing.assert_allclose(ours[user, place], expected, rtol=1e-4, atol=1e-5)
    assert not ours[0].any(), "an empty history"


@pytest.mark.slow
def test_shapes_choose_the_form_and_both_are_the_same(attention, given, monkeypatch):
    # A place costs 2 x 8 x 8 products and 2 x 8 a candidate, or 2 x 2 heads x 8 a candidate.
    assert [attention.makes_keys(count, DIM) for count in (1, 8, 9, 1000)] == [0, 0, 1, 1]
    few = computed(attention, given)
    monkeypatch.setattr(attention, "makes_keys", lambda *_: True)
    assert_same(computed(attention, given), few)


@pytest.mark.slow
def test_a_graph_that_does_not_know_how_many_candidates_takes_both(attention, given):
    given = (*given[:3], given[3][:, :1], given[4])
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


@pytest.fixture
def attended(monkeypatch):
    """How many users each call of the layers had, forward or backward, as they were computed."""
    counts = []
    attend = StackedCrossAttention._attend

    def counted(attention, weights, batch):
        users = tf.shape(batch["candidates"])[0]
        tf.numpy_function(lambda count: counts.append(int(count)), [users], [])
        return attend(attention, weights, batch)

    monkeypatch.setattr(StackedCrossAttention, "_attend", counted)
    return counts


def first_users(given, users):
    return tuple(part[:users] for part in given)


@pytest.mark.slow
def test_parts_of_the_users_have_the_same_results_and_gradients(
    attention, given, attended, monkeypatch
):
    """Eagerly, and in a graph that does not know how many users there are."""
    batches = [first_users(given, users) for users in (5, 2, 1)]
    whole = [computed(attention, batch) for batch in batches]
    attended.clear()
    monkeypatch.setattr(stca, "NUMBERS_PER_PART", 3 * NUMBERS_OF_A_USER)
    assert_same(computed(attention, batches[0]), whole[0])
    assert attended == [3, 3] * 2  # a prime number: one of the second part's is a filler
    monkeypatch.setattr(stca, "NUMBERS_PER_PART", 2 * NUMBERS_OF_A_USER)
    specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in given]
    in_graph = tf.function(
        lambda *given: computed(attention, given), input_signature=specs, autograph=False
    )
    received = []
    for batch, expected in zip(batches, whole, strict=True):
        attended.clear()
        assert_same(in_graph(*batch), expected)
        received.append(list(attended))
    assert received == [[2] * 6, [2], [1]]  # twice where there are parts


@pytest.mark.slow
def test_xla_compiles_parts_of_the_users(attention, given, monkeypatch):
    batch = first_users(given, 5)
    whole = computed(attention, batch)
    monkeypatch.setattr(stca, "NUMBERS_PER_PART", 3 * NUMBERS_OF_A_USER)
    specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in given]
    compiled = tf.function(
        lambda *given: computed(attention, given),
        input_signature=specs,
        jit_compile=True,
        autograph=False,
    )
    assert_same(compiled(*batch), whole)
