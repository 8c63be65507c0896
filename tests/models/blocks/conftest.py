"""Inputs of blocks: vectors, ids, and masks in which every length of a history occurs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models.blocks.search.search_and_attention import LongHistory, Target


@pytest.fixture
def arrays():
    """Vectors, and masks whose first row is all padding and whose second has one position."""

    class Arrays:
        def __init__(self):
            self.rng = np.random.default_rng(7)

        def vectors(self, *shape):
            return tf.constant(self.rng.normal(size=shape).astype(np.float32))

        def mask(self, batch, length):
            real = np.array([0, 1, length, length // 2, length - 1] * batch)[:batch]
            return tf.constant(np.arange(length) >= length - real[:, None])

        def masks(self, batch, candidates, length):
            """For each candidate one real position less."""
            seen = np.arange(length) < length - np.arange(candidates)[:, None]
            return self.mask(batch, length)[:, tf.newaxis] & tf.constant(seen)

        def ids(self, highest, *shape):
            return tf.constant(self.rng.integers(1, highest + 1, size=shape))

        def attention(self, batch, candidates=3):
            """Candidates of [batch, candidates, 4], a history of [batch, 6, 4] and its masks."""
            vectors = self.vectors(batch, candidates, 4), self.vectors(batch, 6, 4)
            return *vectors, self.masks(batch, candidates, 6)

        def target_and_history(self, batch, time_dim=0, candidates=3):
            """Candidates of [batch, 3, 4] and a history of [batch, 6, 4], of two categories."""
            vectors, history = self.vectors(batch, candidates, 4), self.vectors(batch, 6, 4)
            times = self.vectors(batch, 6, time_dim) if time_dim else None
            ids = {"category": self.ids(2, batch, 6)}
            target = Target(vectors, {"category": self.ids(2, batch, candidates)})
            return target, LongHistory(history, self.masks(batch, candidates, 6), ids, times)

        def short_histories(self, batch, candidates, windows, length):
            """What interest evolution takes: candidates, windows of vectors, and their masks."""
            mask = self.masks(batch, windows, length)
            history = self.vectors(batch, windows, length, 3)
            history *= tf.cast(mask, tf.float32)[..., tf.newaxis]
            return self.vectors(batch, candidates, 3), history, mask

        def next_items(self, batch, length):
            """What the auxiliary network takes: states, items, other items, and their mask."""
            states = [self.vectors(batch, 5) for _ in range(length)]
            history, negative = self.vectors(batch, length, 3), self.vectors(batch, length, 3)
            return states, history, negative, self.mask(batch, length)

    return Arrays()
