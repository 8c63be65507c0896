from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import TargetAttention
from merlin_sim.models.blocks.checks import OptionError


@pytest.mark.parametrize("time_dim", [0, 3])
def test_contract(contract_step, arrays, time_dim):
    def inputs(batch):
        times = [arrays.vectors(batch, 6, time_dim)] if time_dim else []
        vectors = arrays.vectors(batch, 3, 4), arrays.vectors(batch, 6, 4)
        return (*vectors, arrays.masks(batch, 3, 6), *times)

    contract_step(lambda: TargetAttention(2, 3, time_dim), inputs)


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


def test_it_is_attention_with_keys_and_values(arrays):
    attention = TargetAttention(2, 3, time_dim=2)
    target, history, times = (arrays.vectors(5, *shape) for shape in ((3, 4), (6, 4), (6, 2)))
    mask = arrays.masks(5, 3, 6)
    attended = attention(target, history, mask, times).numpy()
    for user, place in np.ndindex(5, 3):
        parts = target[user, place], history[user], mask[user, place], times[user]
        expected = attend_slowly(attention, *(part.numpy() for part in parts))
        np.testing.assert_allclose(attended[user, place], expected, rtol=1e-4, atol=1e-6)


def test_nothing_to_see_is_zeros_and_one_mask_serves_all_candidates(arrays):
    attention = TargetAttention(2, 3)
    target, history = arrays.vectors(5, 3, 4), arrays.vectors(5, 6, 4)
    for_all = arrays.mask(5, 6)[:, tf.newaxis]
    attended = attention(target, history, for_all).numpy()
    assert not attended[0].any() and attended[1:].any(axis=-1).all()
    for_each = attention(target, history, tf.repeat(for_all, 3, axis=1))
    np.testing.assert_array_equal(attended, for_each)


def test_no_head_is_an_error():
    with pytest.raises(OptionError, match="`heads` should be a positive integer"):
        TargetAttention(heads=0)
