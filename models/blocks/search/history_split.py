"""A history split into its long and its short part."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.core.base import Block

from ..checks import OptionError
from ..serialization import register_block


class SplitHistory(NamedTuple):
    """The two parts of a history, oldest first in each."""

    long: tf.Tensor
    """The older positions: [batch, long_length, ...]."""

    short: tf.Tensor
    """The newest positions: [batch, history - long_length, ...]."""


@register_block
class HistorySplit(Block):
    """Split padded histories after ``long_length`` positions.

    Ids, masks and embeddings [batch, history, ...] are all split the same way. A history is padded
    on the left, so a user with few interactions has them in the short part.

    >>> parts = HistorySplit(long_length=3)(tf.constant([[0, 0, 4, 5, 6]]))
    >>> parts.long.numpy().tolist(), parts.short.numpy().tolist()
    ([[0, 0, 4]], [[5, 6]])

    Args:
        long_length: How many positions the long part has; the rest is the short one.
    """

    def __init__(self, long_length: int, **kwargs: Any) -> None:
        """Check the option."""
        super().__init__(autocast=False, **kwargs)
        if isinstance(long_length, bool) or not isinstance(long_length, int) or long_length < 0:
            raise OptionError(
                "`long_length` should be an integer of at least 0. "
                f"Received: `long_length` = {long_length!r}."
            )
        self.long_length = long_length

    def call(self, inputs: tf.Tensor) -> SplitHistory:
        """Split ``inputs``, [batch, history, ...], along the history."""
        return SplitHistory(inputs[:, : self.long_length], inputs[:, self.long_length :])

    def compute_output_shape(self, input_shape: Any) -> SplitHistory:
        """Return the shapes of the two parts."""
        batch, history, *rest = tf.TensorShape(input_shape).as_list()
        short = None if history is None else history - self.long_length
        return SplitHistory(
            tf.TensorShape([batch, self.long_length, *rest]), tf.TensorShape([batch, short, *rest])
        )

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {**config, "long_length": self.long_length}
