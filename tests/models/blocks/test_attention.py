"""Attention to a history, of the kinds of which there is no golden case."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.activation_unit import ActivationUnit
from merlin_sim.models.blocks.attention import (
    DINAttention,
    SummedAttention,
    TargetAttention,
    masked_softmax,
)
from merlin_sim.models.blocks.checks import OptionError


def test_extreme_scores_have_no_nan():
    target = tf.constant([[[1e3, -1e3]]])
    history = tf.constant([[[1e3, 0.0], [0.0, 1e3], [0.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch([target, history])
        interest = DINAttention()(target, history, tf.constant([[[True, True, True]]]))
    gradients = tape.gradient(interest, [target, history])
    assert interest.numpy().tolist() == [[[1e3, 0.0]]]
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    for dtype in (np.float32, np.float16):
        largest = np.finfo(dtype).max
        scores = tf.constant([[largest, -largest, 0.0]], dtype)
        if dtype == np.float16:
            scores = tf.concat([scores * 2, scores], axis=0)  # infinities
        weights = masked_softmax(scores, tf.ones(scores.shape, tf.bool))
        np.testing.assert_array_equal(weights, [[1.0, 0.0, 0.0]] * scores.shape[0])


def attend_slowly(attention, target, keys, mask, times):
    """Attention of one candidate, head by head, with keys and values that are written out."""
    query, key, value = (
        kernel.numpy().reshape(4, 2, 3)
        for kernel in (attention.target_kernel, attention.history_kernel, attention.value_kernel)
    )
    heads = []
    for head in range(2):
        scores = (keys @ key[:, head]) @ (target @ query[:, head]) / np.sqrt(3)
        scores = scores + times @ attention.time_kernel.numpy()[:, head]
        weights = np.exp(scores) * mask
        weights /= max(weights.sum(), 1e-30)
        heads.append(weights @ (keys @ value[:, head]))
    return np.concatenate(heads)


def test_target_attention_is_that_with_keys_and_values(arrays):
    attention, times = TargetAttention(2, 3, time_dim=2), arrays.vectors(5, 6, 2)
    target, history, mask = arrays.attention(5)
    attended = attention(target, history, mask, times).numpy()
    for user, place in np.ndindex(5, 3):
        parts = target[user, place], history[user], mask[user, place], times[user]
        expected = attend_slowly(attention, *(part.numpy() for part in parts))
        np.testing.assert_allclose(attended[user, place], expected, rtol=1e-4, atol=1e-6)
    assert not attended[0].any(), "an empty history"
    for_all = mask[:, :1]
    for_each = attention(target, history, tf.repeat(for_all, 3, axis=1), times)
    np.testing.assert_array_equal(attention(target, history, for_all, times), for_each)


def test_summed_attention_is_the_weighed_mean_times_the_logarithm_of_how_much(arrays):
    attention, (target, history, mask) = SummedAttention(1, 3), arrays.attention(5)
    ours = attention(target, history, mask).numpy()
    query, key, value, bias = (
        variable.numpy()
        for variable in (
            *(attention.target_kernel, attention.history_kernel),
            *(attention.value_kernel, attention.bias),
        )
    )
    for user, place in np.ndindex(5, 3):
        items = history[user].numpy()
        scores = (items @ key) @ (target[user, place].numpy() @ query) / np.sqrt(3) + bias
        weights = mask[user, place].numpy() / (1 + np.exp(-scores))
        count = weights.sum()
        mean = weights @ (items @ value) / max(count, 1e-30)
        expected = [*(np.log1p(count) * mean), np.log1p(count)]
        np.testing.assert_allclose(ours[user, place], expected, rtol=1e-4, atol=1e-6)
    assert not ours[0].any(), "an empty history"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ActivationUnit(()), r"`hidden_dims` .*\(1 or more\)"),
        (lambda: DINAttention("cosine"), "'dot' or 'activation_unit'. Received: .*'cosine'"),
        (lambda: TargetAttention(heads=0), "`heads` should be a positive integer"),
    ],
)
def test_refused_options(make, message):
    with pytest.raises(OptionError, match=message):
        make()
