"""The middle of DIEN: how the user's interest in the target evolved over the short history."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..attention.activation_unit import ActivationUnit
from ..attention.masked_softmax import masked_softmax
from ..checks import check_positive
from ..heads.hidden_layers import PReLU
from ..serialization import register_block
from ..shapes import Size, as_rows, beside_candidates, gather_places, is_one, sharing_of, sizes
from .augru import AUGRU
from .interest_extractor import InterestExtractor


class Evolution(NamedTuple):
    """What interest evolution gives."""

    final_state: tf.Tensor
    """The interest in each candidate at the end: [users, candidates, units]."""

    states: list[tf.Tensor]
    """The state after each position, for the auxiliary network: short x [users, windows, units]."""


@register_block
class InterestEvolution(Block):
    """GRU, attention of a candidate to its states, AUGRU (DIEN, arXiv 1809.03672).

        h_1..h_T = GRU(e_1..e_T)
        a = softmax(ActivationUnit(PReLU(Dense(candidate)), h))    over the real positions
        final state = AUGRU(h, a)

    The GRU starts from zero at every window. Candidates that see the same have one window, over
    which it runs once, and all that follows of the states alone is computed once too. Or it runs
    once over a stretch that has all windows of a user in it: a window's states then remember what
    was before it in the stretch.

    >>> evolution = InterestEvolution(units=6)
    >>> history, mask = tf.ones([2, 1, 5, 4]), tf.ones([2, 1, 5], tf.bool)
    >>> evolution(tf.ones([2, 3, 4]), history, mask).final_state.shape
    TensorShape([2, 3, 6])

    Args:
        units: Size of the states; the published models take 6 x embedding_dim.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.units = check_positive("units", units)
        policy = self._dtype_policy
        self.gru = InterestExtractor(units, dtype=policy, name="gru")
        self.item_dense = tf.keras.layers.Dense(units, dtype=policy, name="item_dense")
        self.item_prelu = PReLU(dtype=policy, name="item_prelu")
        self.activation_unit = ActivationUnit(dtype=policy, name="activation_unit")
        self.augru = AUGRU(units, dtype=policy, name="augru")

    def build(self, input_shape: Any) -> None:
        """Create the weights for candidates of [users, candidates, dim], of the items' vectors."""
        dim = int(input_shape[-1])
        self.gru.build(tf.TensorShape([None, dim]))
        self.item_dense.build(tf.TensorShape([None, dim]))
        self.item_prelu.build(tf.TensorShape([None, self.units]))
        self.activation_unit.build(tf.TensorShape([None, self.units]))
        self.augru.build(tf.TensorShape([None, self.units]))
        super().build(input_shape)

    def call(
        self,
        candidates: tf.Tensor,
        short_history: tf.Tensor,
        short_mask: tf.Tensor,
        places: tf.Tensor | None = None,
    ) -> Evolution:
        """Follow the interest through the short history.

        Args:
            candidates: [users, candidates, dim].
            short_history: [users, windows, short, dim], with a window for each candidate, or one
                for several that follow each other, or for all of a user; zeros at padded positions.
            short_mask: [users, windows, short], bool; True where a position is real.
            places: [users, windows, short], int32, for one pass over a stretch: where each window
                is in it. History and mask are then those of the stretch, [users, 1, stretch, ...],
                and so are the states that are returned.
        """
        users, count, _ = sizes(candidates)
        # Keras casts a layer's first input only.
        short_history = as_rows(tf.cast(short_history, self.compute_dtype))
        positions = tf.unstack(short_history, axis=1)  # short x [users x windows, dim]
        states = self.gru(positions)  # short x [users x windows, units]
        shape = [users, sizes(short_mask)[1], self.units]
        whole = [tf.reshape(state, shape) for state in states]
        if places is not None:
            states = self._of_windows(states, places)
            short_mask = gather_places(short_mask[:, 0], places)
        windows, sharing = sizes(short_mask)[1], sharing_of(candidates, short_mask)
        item = self.item_prelu(self.item_dense(as_rows(candidates)))  # [samples, units]
        scores = self._scores(item, states, windows, sharing)
        mask = beside_candidates(as_rows(short_mask), sharing)
        attention = masked_softmax(scores, mask)  # [samples, short]
        final_state = self.augru(states, attention, sharing)
        final_state = tf.reshape(final_state, [users, count, self.units])
        return Evolution(final_state, whole)

    def _of_windows(self, states: list[tf.Tensor], places: tf.Tensor) -> list[tf.Tensor]:
        """Return the states of each window: short x [users x windows, units]."""
        users, windows, short = sizes(places)
        # A product, whose gradient is one too: that of a gather adds up row by row.
        chosen = tf.one_hot(places, len(states), dtype=self.compute_dtype)
        chosen = tf.reshape(chosen, [users, windows * short, len(states)])
        found = tf.matmul(chosen, tf.stack(states, axis=1))  # [users, windows x short, units]
        rows = tf.reshape(found, [users * windows, short, self.units])
        of_windows: list[tf.Tensor] = tf.unstack(rows, axis=1)
        return of_windows

    def _scores(
        self, item: tf.Tensor, states: list[tf.Tensor], windows: Size, sharing: Size
    ) -> tf.Tensor:
        """Return the scores of each candidate: [samples, short]."""
        if not is_one(windows):
            return self.activation_unit.score_each(item, states, sharing)
        item = tf.reshape(item, [sizes(states[0])[0], sharing, self.units])
        return as_rows(self.activation_unit(item, tf.stack(states, axis=1)))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}
