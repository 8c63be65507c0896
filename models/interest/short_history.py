"""The short history of DIEN and SIM: the windows of a batch, and their auxiliary logits."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..blocks.recurrence.auxiliary_network import AuxiliaryLogits, AuxiliaryNetwork
from ..blocks.recurrence.interest_evolution import Evolution
from ..blocks.shapes import as_rows, beside_candidates, sharing_of


class ShortHistory(NamedTuple):
    """The newest positions of what candidates see: of each one, or once for several of a user."""

    vectors: tf.Tensor
    """The items' vectors, zeros where there is no position: [users, windows, short, dim]."""

    mask: tf.Tensor
    """Where there is one: [users, windows, short], bool."""


def auxiliary_of_samples(
    network: AuxiliaryNetwork, evolution: Evolution, short: ShortHistory, negative: tf.Tensor
) -> AuxiliaryLogits:
    """Return each sample's auxiliary logits: a window that several candidates share counts for all.

    Args:
        network: What makes them.
        evolution: What interest evolution made of the short history.
        short: The short history.
        negative: The vectors of items not clicked, like those of ``short``.
    """
    states = [as_rows(state) for state in evolution.states]
    windows = (as_rows(part) for part in (short.vectors, negative, short.mask))
    logits: AuxiliaryLogits = network(states, *windows)
    sharing = sharing_of(evolution.final_state, short.mask)
    return AuxiliaryLogits(*(beside_candidates(part, sharing) for part in logits))
