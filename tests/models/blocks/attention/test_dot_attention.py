from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.attention import (
    attention_weights,
    dot_attention_sums,
    dot_scores,
)


def piece_by_piece(target, history, masks, rows):
    weights = [attention_weights(dot_scores(target, history), mask) for mask in masks]
    return [tf.einsum("umt,utd->umd", row, history) for row in [*weights, *rows]]


@pytest.mark.parametrize("candidates", [1, 3])
def test_the_written_out_gradient_is_that_of_the_pieces(arrays, candidates):
    target, history = arrays.vectors(5, candidates, 4), arrays.vectors(5, 7, 4)
    masks = [arrays.masks(5, candidates, 7) for _ in range(2)]
    masks[1] &= arrays.ids(2, 5, candidates, 7) > 1
    rows = [arrays.vectors(5, candidates, 7)]
    losses, gradients = [], []
    for whole in (True, False):
        with tf.GradientTape() as tape:
            tape.watch([target, history])
            if whole:
                scores = dot_scores(target, history)
                weights = [attention_weights(scores, mask) for mask in masks]
                sums = dot_attention_sums(target, history, weights, rows)
            else:
                sums = piece_by_piece(target, history, masks, rows)
            loss = tf.add_n([tf.reduce_sum(tf.sin(part)) for part in sums])
        losses.append(loss)
        gradients.append(tape.gradient(loss, [target, history]))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    for ours, theirs in zip(*gradients, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_constant_rows_alone(arrays):
    history, rows = arrays.vectors(2, 3, 4), [arrays.vectors(2, 2, 3)]
    target = arrays.vectors(2, 2, 4)
    (row_sum,) = dot_attention_sums(target, history, [], rows)
    np.testing.assert_allclose(row_sum, piece_by_piece(target, history, [], rows)[0], rtol=1e-5)
