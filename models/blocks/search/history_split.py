"""The part of a history that each candidate may see, split into long and short."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from ..checks import check_length
from ..serialization import ConfiguredBlock, register_block
from ..shapes import gather_or_zero, sizes


class SplitHistory(NamedTuple):
    """The two parts of a history, oldest first in each."""

    long: tf.Tensor
    """The positions that can be in a long part: [users, long]; of a mask [users, windows, long]."""
    short: tf.Tensor
    """The newest positions of each window: [users, windows, short]."""


@register_block
class HistorySplit(ConfiguredBlock):
    """Split the window that a candidate sees after its ``long_length`` oldest positions.

    Without ``ends`` all candidates of a user see the whole history: one window a user. With them
    each candidate has a window of its own, the ``long_length + short_length`` positions before its
    end. The long part is then all positions that some candidate may have in it, and a mask says
    which candidate has which: a long history is never copied. The short parts are.

    A history is padded on the left, so a user with few interactions has them in the short part.

    >>> split = HistorySplit(long_length=3, short_length=2)
    >>> parts = split(tf.constant([[0, 0, 4, 5, 6]]))
    >>> parts.long.numpy().tolist(), parts.short.numpy().tolist()
    ([[0, 0, 4]], [[[5, 6]]])
    >>> split(tf.constant([[1, 2, 3, 4, 5, 6]]), tf.constant([[5, 6]])).short.numpy().tolist()
    [[[4, 5], [5, 6]]]

    Args:
        long_length: How many positions the long part of a window has.
        short_length: How many the short part has.
    """

    def __init__(self, long_length: int, short_length: int, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.long_length = check_length("long_length", long_length)
        self.short_length = check_length("short_length", short_length)

    def call(self, inputs: tf.Tensor, ends: tf.Tensor | None = None) -> SplitHistory:
        """Split ``inputs``, [users, positions]; 0 pads short parts.

        Args:
            inputs: Ids, or any numbers of which 0 is padding.
            ends: [users, candidates]; None where all see the whole history.
        """
        if ends is None:
            long, short = inputs[:, : self.long_length], inputs[:, self.long_length :]
            return SplitHistory(long, short[:, tf.newaxis])
        return SplitHistory(inputs[:, : self._reach(inputs)], self._short(inputs, ends))

    def span(self, inputs: tf.Tensor) -> tf.Tensor:
        """Return the positions that some window's short part may have, once: [users, 1, span].

        That is all but the ``long_length`` oldest, for windows that end after a whole one.
        """
        return inputs[:, tf.newaxis, self.long_length :]

    def windows_in_span(self, ends: tf.Tensor) -> tf.Tensor:
        """Return where each window's short part is in the span: [users, windows, short].

        Below 0, or beyond its end, stands what it has not: the window of a filler.
        """
        begins = ends - (self.long_length + self.short_length)
        return begins[..., tf.newaxis] + tf.range(self.short_length, dtype=ends.dtype)

    def masks(self, real: tf.Tensor, ends: tf.Tensor | None = None) -> SplitHistory:
        """Say which positions each candidate sees, of those that are ``real``."""
        parts = self(real, ends)
        long = parts.long[:, tf.newaxis]
        if ends is None:
            return SplitHistory(long, parts.short)
        position = tf.range(self._reach(real), dtype=ends.dtype)
        begins = ends[..., tf.newaxis] - (self.long_length + self.short_length)
        is_seen = (position >= begins) & (position < begins + self.long_length)
        return SplitHistory(is_seen & long, parts.short)

    def _reach(self, inputs: tf.Tensor) -> Any:
        """Return how many positions can be in a long part: not the newest, which are short."""
        return sizes(inputs)[1] - self.short_length

    def _short(self, inputs: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        indices = ends[..., tf.newaxis] + tf.range(-self.short_length, 0, dtype=ends.dtype)
        return gather_or_zero(inputs, indices)
