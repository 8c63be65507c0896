"""The paper's exact search unit: several heads, over items and times."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.core.base import Block

from .checks import check_positive
from .dot_attention import attention_sums
from .exact_search_unit import LongInterest
from .general_search_unit import SearchResult
from .masked_softmax import masked_softmax


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class MultiHeadSearchUnit(Block):
    """Multi-head attention to what the search kept (SIM, equations 5 to 7).

        z_t = [h_t, time vector of t]
        weights_i = softmax((W_i z_t) . (V_i target))   over the kept t
        attended = [sum_t weights_1t z_t, ..., sum_t weights_qt z_t]

    (W_i z) . (V_i e) = z . (W_i' V_i e): one vector per head and sample is multiplied with the
    history, not a matrix with every position.

    Args:
        heads: How many.
        head_dim: Length of the vectors that a head compares.
        time_dim: Length of the time vectors; 0 without.
    """

    def __init__(self, heads: int, head_dim: int, time_dim: int = 0, **kwargs: Any) -> None:
        """Check the options."""
        super().__init__(autocast=False, **kwargs)
        self.heads = check_positive("heads", heads)
        self.head_dim = check_positive("head_dim", head_dim)
        self.time_dim = time_dim

    def build(self, input_shape: Any) -> None:
        """Create the kernels for targets of [batch, dim]."""
        dim = int(input_shape[-1])
        width = [self.heads, self.head_dim]
        self.target_kernel = self.add_weight(
            "target_kernel", [dim, *width], experimental_autocast=False
        )
        self.history_kernel = self.add_weight(
            "history_kernel", [dim + self.time_dim, *width], experimental_autocast=False
        )
        super().build(input_shape)

    def head_weights(
        self, target_item: tf.Tensor, history: tf.Tensor, mask: tf.Tensor
    ) -> tf.Tensor:
        """Return each head's attention over ``mask``: [batch, heads, history], float32.

        Args:
            target_item: [batch, dim].
            history: [batch, history, dim + time_dim].
            mask: [batch, history], bool.
        """
        query = tf.einsum("bd,dhk->bhk", tf.cast(target_item, tf.float32), self.target_kernel)
        query = tf.einsum("bhk,zhk->bhz", query, self.history_kernel)
        scores = tf.matmul(query, tf.cast(history, tf.float32), transpose_b=True)
        mask = mask[:, tf.newaxis, :]
        return masked_softmax(scores, mask) * tf.cast(mask, tf.float32)

    def call(
        self,
        target_item: tf.Tensor,
        long_history: tf.Tensor,
        found: SearchResult,
        time_vectors: tf.Tensor | None = None,
        stage_one: bool = False,
    ) -> LongInterest:
        """Attend to what the search found.

        Args:
            target_item: [batch, dim].
            long_history: [batch, long, dim].
            found: What the general search unit found in it for this target.
            time_vectors: [batch, long, time_dim]; None where ``time_dim`` is 0.
            stage_one: Whether to return the attention over the whole long history too.

        Returns:
            The interest; ``attended`` is [batch, heads x (dim + time_dim)].
        """
        history = with_time(long_history, time_vectors)
        weights = self.head_weights(target_item, history, found.selected)
        attended = tf.matmul(weights, tf.cast(history, tf.float32))  # [batch, heads, dim]
        width = self.heads * history.shape[-1]
        kept = tf.cast(found.selected, tf.float32)
        mean_weights = kept / (tf.reduce_sum(kept, axis=1, keepdims=True) + 1.0)
        of_long = [found.long_attention] if stage_one else []
        sums = attention_sums(target_item, long_history, of_long, [mean_weights])
        *searched, mean = [tf.cast(vector, self.compute_dtype) for vector in sums]
        attended = tf.cast(tf.reshape(attended, [-1, width]), self.compute_dtype)
        return LongInterest(attended, mean, searched[0] if stage_one else None)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "heads": self.heads,
            "head_dim": self.head_dim,
            "time_dim": self.time_dim,
        }


def with_time(history: tf.Tensor, time_vectors: tf.Tensor | None) -> tf.Tensor:
    """Put the time vectors beside the items': [batch, history, dim + time_dim]."""
    if time_vectors is None:
        return history
    return tf.concat([history, tf.cast(time_vectors, history.dtype)], axis=-1)
