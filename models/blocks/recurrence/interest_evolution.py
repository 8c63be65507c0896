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
from .augru import AUGRU
from .interest_extractor import InterestExtractor


class Evolution(NamedTuple):
    """What interest evolution gives."""

    final_state: tf.Tensor
    """The interest at the end: [batch, units]."""

    states: list[tf.Tensor]
    """The state after each position, for the auxiliary network: short x [batch, units]."""


@register_block
class InterestEvolution(Block):
    """GRU, attention of the target to its states, AUGRU (DIEN, https://arxiv.org/abs/1809.03672).

        h_1..h_T = GRU(e_1..e_T)
        a = softmax(ActivationUnit(PReLU(Dense(target)), h))    over the real positions
        final state = AUGRU(h, a)

    >>> evolution = InterestEvolution(units=6)
    >>> history, mask = tf.ones([2, 5, 4]), tf.ones([2, 5], tf.bool)
    >>> evolution(tf.ones([2, 4]), history, mask).final_state.shape
    TensorShape([2, 6])

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
        """Create the weights for targets of [batch, dim], histories of [batch, short, dim]."""
        dim = int(input_shape[-1])
        self.gru.build(tf.TensorShape([None, dim]))
        self.item_dense.build(tf.TensorShape([None, dim]))
        self.item_prelu.build(tf.TensorShape([None, self.units]))
        self.activation_unit.build(tf.TensorShape([None, self.units]))
        self.augru.build(tf.TensorShape([None, self.units]))
        super().build(input_shape)

    def call(
        self, target_item: tf.Tensor, short_history: tf.Tensor, short_mask: tf.Tensor
    ) -> Evolution:
        """Follow the interest through the short history.

        Args:
            target_item: [batch, dim].
            short_history: [batch, short, dim]; zeros at padded positions.
            short_mask: [batch, short], bool; True where a position is real.
        """
        # Keras casts a layer's first input only.
        short_history = tf.cast(short_history, self.compute_dtype)
        positions = tf.unstack(short_history, axis=1)  # short x [batch, dim]
        states = self.gru(positions)  # short x [batch, units]
        item = self.item_prelu(self.item_dense(target_item))  # [batch, units]
        scores = self.activation_unit.score_each(item, states)  # [batch, short]
        attention = masked_softmax(scores, short_mask)
        return Evolution(self.augru(states, attention), states)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {**super().get_config(), "units": self.units}
