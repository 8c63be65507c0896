"""The short history: the windows of a batch, attention to them, and their auxiliary logits."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..blocks.attention.target_attention import TargetAttention
from ..blocks.recurrence.auxiliary_network import AuxiliaryLogits, AuxiliaryNetwork
from ..blocks.recurrence.interest_evolution import Evolution
from ..blocks.search.history_split import HistorySplit
from ..blocks.shapes import as_rows, beside_candidates, gather_places, sharing_of, sizes


class ShortHistory(NamedTuple):
    """The newest positions of what candidates see: of each one, or once for several of a user."""

    vectors: tf.Tensor
    """The items' vectors, zeros where there is no position: [users, windows, short, dim], or
    [users, 1, stretch, dim] where :class:`ShortWindows` are cut so.
    """

    mask: tf.Tensor
    """Where there is one: [users, windows, short], bool."""


class ShortWindows(NamedTuple):
    """How the short history is cut out of a batch's histories: each window, or all in one stretch.

    A stretch is worth its while where windows have ends of their own; otherwise it is the window.
    """

    split: HistorySplit
    """Where histories are split."""

    ends: tf.Tensor | None
    """The windows' ends: [users, windows]; None where all candidates see the whole history."""

    places: tf.Tensor | None
    """Where each window is in the stretch: [users, windows, short]; None where each is cut out."""

    @classmethod
    def of(cls, split: HistorySplit, ends: tf.Tensor | None, one_pass: bool) -> ShortWindows:
        """Cut as the model's ``one_pass`` says."""
        in_stretch = one_pass and ends is not None
        return cls(split, ends, split.places_in_stretch(ends) if in_stretch else None)

    def cut(self, column: tf.Tensor) -> tf.Tensor:
        """Cut out of [users, places]: [users, windows, short], or [users, 1, stretch]."""
        if self.places is not None:
            return self.split.stretch(column)
        return self.split(column, self.ends).short


def auxiliary_of_samples(
    network: AuxiliaryNetwork,
    evolution: Evolution,
    short: ShortHistory,
    negative: tf.Tensor,
    training: bool,
    places: tf.Tensor | None = None,
) -> AuxiliaryLogits:
    """Return each sample's auxiliary logits: a window that several candidates share counts for all.

    Of a stretch they are made once, and taken for every window that has both of their positions.

    Args:
        network: What makes them.
        evolution: What interest evolution made of the short history.
        short: The short history.
        negative: The vectors of items not clicked, like those of ``short``.
        training: Whether the network's dropout applies.
        places: Where each window is in the stretch that all else is of, [users, windows, short];
            None where it is of windows.
    """
    states = [as_rows(state) for state in evolution.states]
    windows = (as_rows(part) for part in (short.vectors, negative, short.mask))
    logits: AuxiliaryLogits = network(states, *windows, training=training)
    of_windows = short.mask
    if places is not None:
        of_windows, pairs = places, places[..., 1:] - 1
        logits = AuxiliaryLogits(*(as_rows(gather_places(part, pairs)) for part in logits))
    sharing = sharing_of(evolution.final_state, of_windows)
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
