"""DIEN's auxiliary network: does a state tell the next click from an item not clicked?"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import check_dims, check_positive, check_rate
from ..serialization import register_block


class AuxiliaryLogits(NamedTuple):
    """What the auxiliary network thinks of each next position; each [rows, short - 1]."""

    click: tf.Tensor
    """Logits of the items that were clicked next, float32."""

    noclick: tf.Tensor
    """Logits of the items that were not, float32."""

    mask: tf.Tensor
    """Where the next position is real, bool."""


@register_block
class AuxiliaryNetwork(Block):
    """Sigmoid MLP on [h(1..T-1), e(2..T)], for the real and the negative history.

    DIEN (https://arxiv.org/abs/1809.03672), interest extractor layer. The first kernel is
    multiplied in two parts: the states' serves both histories. The logits are float32 under every
    policy.

    >>> network = AuxiliaryNetwork(item_dim=4)
    >>> history, mask = tf.ones([2, 5, 4]), tf.ones([2, 5], tf.bool)
    >>> network([tf.ones([2, 6])] * 5, history, -history, mask).click.shape
    TensorShape([2, 4])

    Args:
        item_dim: Length of the item vectors.
        hidden_dims: Sizes of the hidden layers.
        dropout_rate: Share of the last hidden layer dropped in training; None for off.
    """

    def __init__(
        self,
        item_dim: int,
        hidden_dims: tuple[int, ...] = (100, 50),
        dropout_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        """Check the options and make the layers."""
        super().__init__(**kwargs)
        self.item_dim = check_positive("item_dim", item_dim)
        self.hidden_dims = check_dims("hidden_dims", hidden_dims, at_least=1)
        self.dropout_rate = check_rate("dropout_rate", dropout_rate)
        policy = self._dtype_policy
        self.dense = [
            tf.keras.layers.Dense(units, activation="sigmoid", dtype=policy, name=f"dense_{place}")
            for place, units in enumerate(self.hidden_dims)
        ]
        last = f"dense_{len(self.hidden_dims)}"
        self.dense.append(tf.keras.layers.Dense(1, dtype=policy.variable_dtype, name=last))
        self.dropout = None if dropout_rate is None else tf.keras.layers.Dropout(dropout_rate)

    def build(self, input_shape: Any) -> None:
        """Create the weights for states of [rows, units] each."""
        shape = input_shape[0] if isinstance(input_shape, list) else input_shape
        width = int(shape[-1]) + self.item_dim
        for dense in self.dense:
            dense.build(tf.TensorShape([None, width]))
            width = dense.units
        super().build(input_shape)

    def call(
        self,
        states: list[tf.Tensor],
        history: tf.Tensor,
        negative_history: tf.Tensor,
        history_mask: tf.Tensor,
        training: bool = False,
    ) -> AuxiliaryLogits:
        """Score what came next, and what did not, after each state.

        Args:
            states: One [rows, units] for each position of the short history.
            history: [rows, short, dim], item vectors.
            negative_history: [rows, short, dim].
            history_mask: [rows, short], bool.
            training: Whether dropout applies, to each of the two histories by itself.
        """
        batch = tf.shape(history)[0]
        if len(states) < 2:  # no position has a next one
            nothing = tf.zeros([batch, 0], tf.float32)
            return AuxiliaryLogits(nothing, nothing, history_mask[:, 1:])
        first = self.dense[0]
        units = states[0].shape[-1]
        of_state, of_item = tf.split(tf.convert_to_tensor(first.kernel), [units, self.item_dim])
        # Time first from here on, as the recurrence made the states: [short - 1, rows, ...].
        state_part = tf.tensordot(tf.stack(states[:-1]), of_state, axes=1) + first.bias
        logits = []
        for items in (history, negative_history):
            # Split, not sliced: the gradient of a slice fills a whole history with zeros first.
            # Keras casts a layer's first input only.
            items = tf.cast(items, self.compute_dtype)
            following = tf.split(items, [1, len(states) - 1], axis=1)[1]
            item_part = tf.tensordot(tf.transpose(following, [1, 0, 2]), of_item, axes=1)
            hidden = tf.sigmoid(state_part + item_part)
            for dense in self.dense[1:-1]:
                hidden = dense(hidden)
            if self.dropout is not None:
                hidden = self.dropout(hidden, training=training)
            scores = self.dense[-1](hidden)
            logits.append(tf.transpose(tf.squeeze(scores, axis=-1)))  # [rows, short - 1]
        return AuxiliaryLogits(logits[0], logits[1], history_mask[:, 1:])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        return {
            **super().get_config(),
            "item_dim": self.item_dim,
            "hidden_dims": list(self.hidden_dims),
            "dropout_rate": self.dropout_rate,
        }
