"""The short history: the windows of a batch, attention to them, and their auxiliary logits."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..blocks.attention.target_attention import TargetAttention
from ..blocks.recurrence.auxiliary_network import AuxiliaryLogits, AuxiliaryNetwork
from ..blocks.recurrence.interest_evolution import Evolution
from ..blocks.shapes import as_rows, beside_candidates, sharing_of, sizes


class ShortHistory(NamedTuple):
    """The newest positions of what candidates see: of each one, or once for several of a user."""

    vectors: tf.Tensor
    """The items' vectors, zeros where there is no position: [users, windows, short, dim]."""

    mask: tf.Tensor
    """Where there is one: [users, windows, short], bool."""


def auxiliary_of_samples(
    network: AuxiliaryNetwork,
    evolution: Evolution,
    short: ShortHistory,
    negative: tf.Tensor,
    training: bool,
) -> AuxiliaryLogits:
    """Return each sample's auxiliary logits: a window that several candidates share counts for all.

    Args:
        network: What makes them.
        evolution: What interest evolution made of the short history.
        short: The short history.
        negative: The vectors of items not clicked, like those of ``short``.
        training: Whether the network's dropout applies.
    """
    states = [as_rows(state) for state in evolution.states]
    windows = (as_rows(part) for part in (short.vectors, negative, short.mask))
    logits: AuxiliaryLogits = network(states, *windows, training=training)
    sharing = sharing_of(evolution.final_state, short.mask)
    return AuxiliaryLogits(*(beside_candidates(part, sharing) for part in logits))


def attend_to_short(
    attention: TargetAttention, candidates: tf.Tensor, short: ShortHistory
) -> tf.Tensor:
    """Attend to the window that each candidate sees.

    Args:
        attention: What attends.
        candidates: [users, candidates, dim].
        short: The windows, of one candidate each or shared by several.

    Returns:
        [users, candidates, attended dim].
    """
    users, count, dim = sizes(candidates)
    windows, sharing = sizes(short.mask)[1], sharing_of(candidates, short.mask)
    together = tf.reshape(candidates, [users * windows, sharing, dim])
    mask = as_rows(short.mask)[:, tf.newaxis]  # the same for all candidates of a window
    attended = attention(together, as_rows(short.vectors), mask)
    return tf.reshape(attended, [users, count, attention.attended_dim])
