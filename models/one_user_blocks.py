"""The blocks' arithmetic for one user and many candidates: what is the user's is computed once.

Each function takes a block and a history, computes what does not depend on a candidate, and returns
the function of the candidates that is left. It gives what the block gives for a batch in which the
same history stands beside every candidate. Histories have no batch axis here, so that products of
candidates and positions are plain matrix products. All of it is in float32, whatever the policy of
the blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from .blocks.activation_unit import ActivationUnit
from .blocks.affine import affine
from .blocks.augru import AUGRU
from .blocks.din_attention import DINAttention
from .blocks.exact_search_unit import LongInterest
from .blocks.general_search_unit import rescaled
from .blocks.interest_evolution import InterestEvolution
from .blocks.masked_softmax import masked_softmax
from .blocks.top_k_mask import top_k_mask

OfCandidates = Callable[[tf.Tensor], tf.Tensor]
"""[candidates, dim] -> [candidates, ...]."""


def activation_unit_over(unit: ActivationUnit, history: tf.Tensor) -> OfCandidates:
    """Score each position for each candidate: :class:`ActivationUnit`.

    The product of candidate and position goes through the kernel as one matrix product: the
    positions are multiplied into the kernel first, which is the user's part.

    Args:
        unit: The block.
        history: [history, dim].

    Returns:
        [candidates, dim] -> [candidates, history].
    """
    of_item, of_history, of_product = (tf.cast(part, tf.float32) for part in unit.kernels())
    (dim, units), length = of_item.shape, history.shape[0]
    # One kernel for each position, side by side, and what the position adds by itself.
    kernels = tf.transpose(history)[:, :, tf.newaxis] * of_product[:, tf.newaxis, :]
    kernels = tf.reshape(kernels + of_item[:, tf.newaxis, :], [dim, length * units])
    biases = tf.reshape(affine(history, of_history, unit.dense[0].bias), [length * units])

    def score(target_items: tf.Tensor) -> tf.Tensor:
        hidden = tf.sigmoid(affine(target_items, kernels, biases))  # [candidates, history x units]
        scores = unit.after_first(tf.reshape(hidden, [-1, units]))  # [candidates x history, 1]
        return tf.reshape(tf.cast(scores, tf.float32), [-1, length])

    return score


def dot_over(history: tf.Tensor, mask: tf.Tensor) -> OfCandidates:
    """Return dot products of candidates and positions, very low where padded.

    Args:
        history: [history, dim].
        mask: [history], bool.

    Returns:
        [candidates, dim] -> [candidates, history].
    """
    lowered = tf.where(mask, 0.0, -1e30)

    def score(target_items: tf.Tensor) -> tf.Tensor:
        return tf.nn.bias_add(tf.matmul(target_items, history, transpose_b=True), lowered)

    return score


def attention_to(attention: DINAttention, history: tf.Tensor, mask: tf.Tensor) -> OfCandidates:
    """Read a history through each candidate: :class:`DINAttention`.

    Args:
        attention: The block.
        history: [history, dim].
        mask: [history], bool.

    Returns:
        [candidates, dim] -> [candidates, dim].
    """
    if attention.activation_unit is not None:
        scores = activation_unit_over(attention.activation_unit, history)
    else:
        scores = dot_over(history, mask)
    # Of a history without a real position, weights of padding are left: they weigh zeros.
    history = history * tf.cast(mask, tf.float32)[:, tf.newaxis]
    return lambda targets: tf.matmul(masked_softmax(scores(targets), mask[tf.newaxis]), history)


def search_in(
    top_k: int, long_history: tf.Tensor, long_mask: tf.Tensor
) -> Callable[[tf.Tensor], LongInterest]:
    """Search for each candidate and attend to what was found: both search units of SIM.

    Args:
        top_k: How many positions to keep at most.
        long_history: [long, dim].
        long_mask: [long], bool.

    Returns:
        [candidates, dim] -> the interest, vectors of [candidates, dim].
    """
    scores = dot_over(long_history, long_mask)
    # Of a history without a real position, padding is found: zeros.
    history = long_history * tf.cast(long_mask, tf.float32)[:, tf.newaxis]

    def search(target_items: tf.Tensor) -> LongInterest:
        weights = tf.nn.softmax(scores(target_items))  # [candidates, long]
        selected = top_k_mask(weights, top_k)
        kept = tf.cast(selected, tf.float32)
        attended = tf.matmul(rescaled(weights, selected), history)
        mean = tf.matmul(kept / (tf.reduce_sum(kept, axis=1, keepdims=True) + 1.0), history)
        return LongInterest(attended, mean, None)

    return search


def evolution_of(interest: InterestEvolution, history: tf.Tensor, mask: tf.Tensor) -> OfCandidates:
    """Follow the interest for each candidate: :class:`InterestEvolution`, its first GRU once.

    Args:
        interest: The block.
        history: [short, dim]; zeros at padded positions.
        mask: [short], bool.

    Returns:
        [candidates, dim] -> the final states, [candidates, units].
    """
    positions = tf.split(history, history.shape[0], axis=0)  # short x [1, dim]
    states = tf.cast(tf.concat(interest.gru(positions), axis=0), tf.float32)  # [short, units]
    scores = activation_unit_over(interest.activation_unit, states)
    run_augru = augru_over(interest.augru, states)

    def evolve(target_items: tf.Tensor) -> tf.Tensor:
        items = tf.cast(interest.item_prelu(interest.item_dense(target_items)), tf.float32)
        return run_augru(masked_softmax(scores(items), mask[tf.newaxis]))

    return evolve


def augru_over(augru: AUGRU, states: tf.Tensor) -> OfCandidates:
    """Run :class:`AUGRU` for each candidate; the products with the inputs are the user's.

    Args:
        augru: The block.
        states: [short, dim].

    Returns:
        The attention, [candidates, short] -> the final states, [candidates, units].
    """
    sizes = [states.shape[-1], augru.units]
    gates_x, gates_h = tf.split(tf.convert_to_tensor(augru.gates_kernel), sizes, axis=0)
    reset_h, update_h = tf.split(gates_h, 2, axis=1)
    candidate_x, candidate_h = tf.split(tf.convert_to_tensor(augru.candidate_kernel), sizes, axis=0)
    resets, updates = tf.split(affine(states, gates_x, augru.gates_bias), 2, axis=1)
    resets, updates = tf.unstack(resets), tf.unstack(updates)  # short x [units]
    candidates = affine(states, candidate_x, augru.candidate_bias)  # [short, units]
    # Before the first position the state is zero: neither product with it is needed. The state
    # after it is a vector of the user's plus, for each candidate, a multiple of another one: its
    # products are those of the two.
    base = tf.tanh(candidates[:1])  # [1, units]
    candidates = tf.unstack(candidates)
    slope = -tf.sigmoid(updates[0]) * base
    line = tf.concat([slope, base], axis=0)  # [2, units]
    reset_line, update_line = tf.matmul(line, reset_h), tf.matmul(line, update_h)

    def run(attention: tf.Tensor) -> tf.Tensor:
        keep = tf.split(1.0 - attention, len(candidates), axis=1)  # short x [candidates, 1]
        along = tf.concat([keep[0], tf.ones_like(keep[0])], axis=1)  # [candidates, 2]
        state = tf.matmul(along, line)  # [candidates, units]
        for t in range(1, len(candidates)):
            if t == 1:
                reset = affine(along, reset_line, resets[1])
                update = affine(along, update_line, updates[1])
            else:
                reset = affine(state, reset_h, resets[t])  # [candidates, units]
                update = affine(state, update_h, updates[t])
            candidate = tf.tanh(affine(tf.sigmoid(reset) * state, candidate_h, candidates[t]))
            state = candidate + (keep[t] * tf.sigmoid(update)) * (state - candidate)
        return state

    return run
