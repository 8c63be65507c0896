"""The blocks' arithmetic for one user and many candidates: what is the user's is computed once.

Each function gives what its block gives for a batch in which the same history stands beside every
candidate. Histories have no batch axis here, so that products of candidates and positions are
plain matrix products. All of it is in float32, whatever the policy of the blocks.
"""

from __future__ import annotations

import tensorflow as tf

from .blocks.activation_unit import ActivationUnit
from .blocks.affine import affine
from .blocks.augru import AUGRU
from .blocks.din_attention import DINAttention
from .blocks.exact_search_unit import LongInterest
from .blocks.interest_evolution import InterestEvolution
from .blocks.masked_softmax import masked_softmax


def score_positions(unit: ActivationUnit, target_items: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
    """Score each position for each candidate: :class:`ActivationUnit`.

    The product of candidate and position goes through the kernel as one matrix product: the
    positions are multiplied into the kernel first, which is the user's part.

    Args:
        unit: The block.
        target_items: [candidates, dim].
        history: [history, dim].

    Returns:
        [candidates, history].
    """
    first, *rest = unit.dense
    kernel = tf.convert_to_tensor(first.kernel)
    item_part, history_part, difference_part, product_part = tf.split(kernel, 4, axis=0)
    dim, units, length = kernel.shape[0] // 4, kernel.shape[1], history.shape[0]
    # One kernel for each position, side by side, and what the position adds by itself.
    kernels = history[:, :, tf.newaxis] * product_part + (item_part + difference_part)
    kernels = tf.reshape(tf.transpose(kernels, [1, 0, 2]), [dim, length * units])
    positions = tf.matmul(history, history_part - difference_part) + first.bias
    positions = tf.reshape(positions, [length * units])
    hidden = tf.sigmoid(affine(target_items, kernels, positions))  # [candidates, history x units]
    hidden = tf.reshape(hidden, [-1, units])  # [candidates x history, units]
    for dense in rest:
        hidden = tf.cast(dense(hidden), tf.float32)
    return tf.reshape(hidden, [-1, length])


def attend(
    attention: DINAttention, target_items: tf.Tensor, history: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Read a history through each candidate: :class:`DINAttention`.

    Args:
        attention: The block.
        target_items: [candidates, dim].
        history: [history, dim].
        mask: [history], bool.

    Returns:
        [candidates, dim].
    """
    if attention.activation_unit is not None:
        scores = score_positions(attention.activation_unit, target_items, history)
    else:
        scores = tf.matmul(target_items, history, transpose_b=True)
    weights = masked_softmax(scores, mask[tf.newaxis]) * tf.cast(mask, tf.float32)
    return tf.matmul(weights, history)


def search(
    top_k: int, target_items: tf.Tensor, long_history: tf.Tensor, long_mask: tf.Tensor
) -> LongInterest:
    """Search for each candidate and attend to what was found: both search units of SIM.

    Args:
        top_k: How many positions to keep at most.
        target_items: [candidates, dim].
        long_history: [long, dim].
        long_mask: [long], bool.
    """
    scores = tf.matmul(target_items, long_history, transpose_b=True)  # [candidates, long]
    weights = masked_softmax(scores, long_mask[tf.newaxis]) * tf.cast(long_mask, tf.float32)
    kept = mark_top_k(weights, top_k)
    # A softmax over some of the positions is that over all of them, rescaled.
    weights *= kept
    weights = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=1, keepdims=True))
    attended = tf.matmul(weights, long_history)
    mean = tf.matmul(kept / (tf.reduce_sum(kept, axis=1, keepdims=True) + 1.0), long_history)
    return LongInterest(attended, mean, None)


def mark_top_k(weights: tf.Tensor, top_k: int) -> tf.Tensor:
    """Do as :func:`~merlin_sim.models.blocks.general_search_unit.top_k_mask` does, faster on CPU.

    The last weight that gets in is selected in linear time instead of sorting for it. The
    operation has no GPU kernel and no gradient, so training does without.

    >>> mark_top_k(tf.constant([[0.2, 0.4, 0.2, 0.2, 0.0]]), 3).numpy().astype(int).tolist()
    [[1, 1, 1, 0, 0]]

    Returns:
        1 where a position is kept, else 0: [candidates, positions], float32.
    """
    positions = weights.shape[1]
    if positions <= top_k:
        return tf.cast(weights > 0, tf.float32)
    limit = tf.raw_ops.NthElement(input=weights, n=top_k - 1, reverse=True)[:, tf.newaxis]
    reached = tf.cast(weights >= limit, tf.float32)
    exact = tf.reduce_all(tf.reduce_sum(reached, axis=1) == float(top_k)) & tf.reduce_all(limit > 0)
    return tf.cond(exact, lambda: reached, lambda: _break_ties(weights, limit, top_k))


def _break_ties(weights: tf.Tensor, limit: tf.Tensor, top_k: int) -> tf.Tensor:
    """Take weights equal to the limit from the first on; none where the limit is 0."""
    positions = weights.shape[1]
    above = tf.cast(weights > limit, tf.float32)
    ties = tf.cast(weights == limit, tf.float32) * tf.cast(limit > 0, tf.float32)
    room = float(top_k) - tf.reduce_sum(above, axis=1, keepdims=True)
    counts = tf.matmul(ties, tf.linalg.band_part(tf.ones([positions, positions]), 0, -1))
    return above + ties * tf.cast(counts <= room, tf.float32)


def evolve(
    interest: InterestEvolution, target_items: tf.Tensor, history: tf.Tensor, mask: tf.Tensor
) -> tf.Tensor:
    """Follow the interest for each candidate: :class:`InterestEvolution`, its first GRU once.

    Args:
        interest: The block.
        target_items: [candidates, dim].
        history: [short, dim]; zeros at padded positions.
        mask: [short], bool.

    Returns:
        The final states: [candidates, units].
    """
    positions = tf.split(history, history.shape[0], axis=0)  # short x [1, dim]
    states = tf.cast(tf.concat(interest.gru(positions), axis=0), tf.float32)  # [short, units]
    items = tf.cast(interest.item_prelu(interest.item_dense(target_items)), tf.float32)
    scores = score_positions(interest.activation_unit, items, states)
    return run_augru(interest.augru, states, masked_softmax(scores, mask[tf.newaxis]))


def run_augru(augru: AUGRU, states: tf.Tensor, attention: tf.Tensor) -> tf.Tensor:
    """Run :class:`AUGRU` for each candidate; the products with the inputs are the user's.

    Args:
        augru: The block.
        states: [short, dim].
        attention: [candidates, short].

    Returns:
        [candidates, units].
    """
    sizes = [states.shape[-1], augru.units]
    gates_x, gates_h = tf.split(tf.convert_to_tensor(augru.gates_kernel), sizes, axis=0)
    reset_h, update_h = tf.split(gates_h, 2, axis=1)
    candidate_x, candidate_h = tf.split(tf.convert_to_tensor(augru.candidate_kernel), sizes, axis=0)
    resets, updates = tf.split(tf.matmul(states, gates_x) + augru.gates_bias, 2, axis=1)
    candidates = tf.matmul(states, candidate_x) + augru.candidate_bias  # [short, units]
    keep = tf.split(1.0 - attention, states.shape[0], axis=1)  # short x [candidates, 1]
    # Before the first position the state is zero: neither product with it is needed. The state
    # after it is a vector of the user's plus, for each candidate, a multiple of another one: its
    # products are those of the two.
    base = tf.tanh(candidates[:1])  # [1, units]
    slope = -tf.sigmoid(updates[:1]) * base
    state = base + keep[0] * slope  # [candidates, units]
    for t in range(1, len(keep)):
        if t == 1:
            reset = resets[1] + tf.matmul(base, reset_h) + keep[0] * tf.matmul(slope, reset_h)
            update = updates[1] + tf.matmul(base, update_h) + keep[0] * tf.matmul(slope, update_h)
        else:
            reset = affine(state, reset_h, resets[t])  # [candidates, units]
            update = affine(state, update_h, updates[t])
        candidate = tf.tanh(affine(tf.sigmoid(reset) * state, candidate_h, candidates[t]))
        state = candidate + (keep[t] * tf.sigmoid(update)) * (state - candidate)
    return state
