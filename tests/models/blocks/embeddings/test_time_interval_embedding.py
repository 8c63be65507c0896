from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.models.blocks.embeddings.feature_embedding import TimeIntervalEmbedding


def test_contract(contract_step, arrays):
    contract_step(
        lambda: TimeIntervalEmbedding(3, buckets=6),
        lambda batch: (10.0 * arrays.vectors(batch, 4) ** 2,),
    )


def test_rows_are_powers_of_two():
    embedding = TimeIntervalEmbedding(1, buckets=40)
    powers = 2.0 ** np.arange(31)
    rows = embedding.bucket(tf.constant(powers - 1, tf.float32))
    np.testing.assert_array_equal(rows, np.arange(31))


def test_impossible_intervals_count_as_none_at_all():
    rows = TimeIntervalEmbedding(1).bucket(tf.constant([-1.0, np.nan, -np.inf, np.inf]))
    assert rows.numpy().tolist() == [0, 0, 0, 31]
