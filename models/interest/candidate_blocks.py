"""The blocks' arithmetic for one user and many candidates: what is the user's is computed once.

Each function takes a block and a history, computes what does not depend on a candidate, and returns
the function of the candidates that is left. It gives what the block gives for a batch in which the
same history stands beside every candidate. Histories have no batch axis here, so that products of
candidates and positions are plain matrix products. All of it is in float32, whatever the policy of
the blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..blocks.attention.activation_unit import ActivationUnit
from ..blocks.attention.din_attention import DINAttention
from ..blocks.attention.dot_attention import candidate_scores
from ..blocks.attention.masked_softmax import masked_softmax
from ..blocks.heads.hidden_layers import affine
from ..blocks.recurrence.augru import AUGRU
from ..blocks.recurrence.interest_evolution import InterestEvolution
from ..blocks.search.history_split import HistorySplit
from .interest_channels import Features

CandidateFunction = Callable[[tf.Tensor], tf.Tensor]
"""[candidates, dim] -> [candidates, ...]."""


class CandidateUser:
    """The vectors of the user whose candidates are scored, in float32.

    Args:
        block: The block whose tables they are looked up in.
        features: One user's, by channel.
        split: What splits the history; None for a block that reads it whole.

    Attributes:
        long: The history, or its long part where it is split: [positions, dim].
        long_mask: [positions], bool.
        short: The short part, zeros where padded: [short, dim]; empty without a split.
        short_mask: [short], bool.
    """

    def __init__(self, block: Any, features: Features, split: HistorySplit | None = None) -> None:
        """Look everything up."""
        self._block = block
        split = split or HistorySplit(block.channels.history_length)
        histories = {name: split(ids) for name, ids in features.positive.items()}
        vectors = _float32(block.embedding({**features.user, **histories}, with_gradient=False))
        self._user = [vectors[name] for name in block.channels.user]
        history = [vectors[name] for name in block.channels.positive]
        mask = split(features.mask)
        self.long_mask, self.short_mask = mask.long[0], mask.short[0]
        self.long = block.join([part.long for part in history])[0]
        self.short = block.join([part.short for part in history], mask.short)[0]

    def embed(self, ids: dict[str, tf.Tensor]) -> tf.Tensor:
        """Look candidates up: [candidates, dim]."""
        vectors = _float32(self._block.embedding(ids, with_gradient=False))
        return self._block.join([vectors[name] for name in self._block.channels.target_item])

    def join(self, parts: list[tf.Tensor]) -> tf.Tensor:
        """Put the user's vectors at the end of each candidate's: [candidates, all dims]."""
        rows = tf.shape(parts[0])[0]
        user = [tf.repeat(vector, rows, axis=0) for vector in self._user]
        return tf.concat([*(tf.cast(part, tf.float32) for part in parts), *user], axis=-1)


def _float32(vectors: Any) -> Any:
    return tf.nest.map_structure(lambda vector: tf.cast(vector, tf.float32), vectors)


def activation_scores_for_candidates(unit: ActivationUnit, history: tf.Tensor) -> CandidateFunction:
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


def attention_for_candidates(
    attention: DINAttention, history: tf.Tensor, mask: tf.Tensor
) -> CandidateFunction:
    """Read a history through each candidate: :class:`DINAttention`.

    Args:
        attention: The block.
        history: [history, dim].
        mask: [history], bool.

    Returns:
        [candidates, dim] -> [candidates, dim].
    """
    if attention.activation_unit is not None:
        scores = activation_scores_for_candidates(attention.activation_unit, history)
    else:
        scores = candidate_scores(history, mask)
    # Of a history without a real position, weights of padding are left: they weigh zeros.
    history = history * tf.cast(mask, tf.float32)[:, tf.newaxis]
    return lambda targets: tf.matmul(masked_softmax(scores(targets), mask[tf.newaxis]), history)


def evolution_for_candidates(
    interest: InterestEvolution, history: tf.Tensor, mask: tf.Tensor
) -> CandidateFunction:
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
    scores = activation_scores_for_candidates(interest.activation_unit, states)
    run_augru = augru_for_candidates(interest.augru, states)

    def evolve(target_items: tf.Tensor) -> tf.Tensor:
        items = tf.cast(interest.item_prelu(interest.item_dense(target_items)), tf.float32)
        return run_augru(masked_softmax(scores(items), mask[tf.newaxis]))

    return evolve


def augru_for_candidates(augru: AUGRU, states: tf.Tensor) -> CandidateFunction:
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
