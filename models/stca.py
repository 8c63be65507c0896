"""Stacked Target-to-History Cross Attention (https://arxiv.org/abs/2511.06077)."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf
from merlin.schema import Schema

from .blocks.serialization import register_block
from .blocks.shapes import sizes
from .blocks.stacked_attention import StackedCrossAttention
from .din import Beside, WholeHistoryBlock
from .interest_block import InterestModel
from .interest_channels import Channels, Features
from .options import STCAOptions


@register_block
class STCABlock(WholeHistoryBlock[STCAOptions]):
    """Cross attention of the target to the whole history, in layers."""

    options_type = STCAOptions
    reads_time_intervals = True

    def read_channels(self, schema: Schema) -> Channels:
        """Find the columns of each channel; time intervals only where there is a table of them."""
        channels = super().read_channels(schema)
        return channels if self.options.time_buckets else replace(channels, time_intervals=None)

    def make_attention(self) -> StackedCrossAttention:
        """Make the layers, whose heads share an item vector's length among them."""
        options = self.options
        return StackedCrossAttention(
            options.layers,
            options.heads,
            -(-self.item_dim // options.heads),
            options.swiglu_dim,
            options.time_buckets if self.channels.time_intervals else None,
            options.position_buckets,
            dtype=self._dtype_policy,
            name="attention",
        )

    @property
    def attended_dim(self) -> int:
        """Length of what all layers give."""
        return int(self.attention.attended_dim)

    def attend(
        self, target: tf.Tensor, history: tf.Tensor, mask: tf.Tensor, beside: Beside
    ) -> tf.Tensor:
        """Return the interest in each candidate: [users, candidates, attended_dim]."""
        times = beside.features.time_intervals
        if times is not None and times.shape.rank == 2:  # of users, with one window each
            times = times[:, tf.newaxis]
        return self.attention(target, history, mask, times, self._places_ago(beside.features))

    def _places_ago(self, features: Features) -> tf.Tensor | None:
        """Count each position's places from its window's end, 1 the newest; None if not read."""
        if self.options.position_buckets is None:
            return None
        users, places = sizes(features.real)
        ends = features.window_ends
        if ends is None:
            ends = tf.fill([users, 1], places)
        return ends[..., tf.newaxis] - tf.range(places)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class STCAModel(InterestModel):
    """STCA as a Merlin model; see :class:`~.interest_block.InterestModel`."""

    body_type = STCABlock
