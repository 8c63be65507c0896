"""The blocks' arithmetic for one user and many candidates: what is the user's is computed once.

Each function gives what its block gives for a batch in which the same history stands beside every
candidate. Histories have no batch axis here, so that products of candidates and positions are
plain matrix products. All of it is in float32, whatever the policy of the blocks.
"""

from __future__ import annotations

import tensorflow as tf

from .blocks.activation_unit import ActivationUnit
from .blocks.augru import AUGRU
from .blocks.din_attention import DINAttention
from .blocks.exact_search_unit import LongInterest
from .blocks.general_search_unit import top_k_mask
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
    positions = tf.matmul(history, history_part - difference_part)  # [history, units]
    kernels = history[:, :, tf.newaxis] * product_part  # [history, dim, units]
    dim, units, length = kernel.shape[0] // 4, kernel.shape[1], history.shape[0]
    kernels = tf.reshape(tf.transpose(kernels, [1, 0, 2]), [dim, length * units])
    products = tf.matmul(target_items, kernels)  # [candidates, history x units]
    targets = tf.matmul(target_items, item_part + difference_part) + first.bias
    hidden = tf.reshape(products, [-1, length, units]) + positions + targets[:, tf.newaxis, :]
    hidden = tf.sigmoid(hidden)  # [candidates, history, units]
    for dense in rest:
        hidden = tf.cast(dense(hidden), tf.float32)
    return tf.squeeze(hidden, axis=-1)


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
    selected = top_k_mask(weights, top_k)
    kept = tf.cast(selected, tf.float32)
    attended = tf.matmul(masked_softmax(scores, selected) * kept, long_history)
    mean = tf.matmul(kept / (tf.reduce_sum(kept, axis=1, keepdims=True) + 1.0), long_history)
    return LongInterest(attended, mean, None)


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
    candidate_x, candidate_h = tf.split(tf.convert_to_tensor(augru.candidate_kernel), sizes, axis=0)
    gates = tf.matmul(states, gates_x) + augru.gates_bias  # [short, 2 units]
    candidates = tf.matmul(states, candidate_x) + augru.candidate_bias  # [short, units]
    keep = tf.unstack((1.0 - attention)[:, :, tf.newaxis], axis=1)  # short x [candidates, 1]
    # Before the first position the state is zero: neither product with it is needed.
    _, update = tf.split(tf.sigmoid(gates[:1]), 2, axis=1)
    state = (1.0 - keep[0] * update) * tf.tanh(candidates[:1])  # [candidates, units]
    for t in range(1, len(keep)):
        both = tf.sigmoid(gates[t] + tf.matmul(state, gates_h))
        reset, update = tf.split(both, 2, axis=1)
        candidate = tf.tanh(candidates[t] + tf.matmul(reset * state, candidate_h))
        update = keep[t] * update
        state = update * state + (1.0 - update) * candidate
    return state
