"""Batches of users x candidates for the models' tests, and the same samples as plain rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

LENGTH, EXTRA = 10, 3
ENDS = np.array([[10, 11, 13, 11], [13, 10, 12, 12], [12, 12, 0, 0]])
WEIGHT = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
REAL = (13, 2, 6)
"""How many positions of each user are real: all, too few for a short history, some."""


def ids(schema, name, *shape, seed=0):
    chance = np.random.default_rng([seed, *name.encode()])
    return chance.integers(1, schema[name].int_domain.max + 1, shape)


def grouped_batch(schema):
    """Three users of four candidates, two of the last user's being fillers.

    With time intervals each candidate has those of its own window, zeros elsewhere.
    """
    columns = {"history_end": ENDS}
    for column in schema:
        tags = set(map(str, column.tags))
        if "user_features" in tags:
            columns[column.name] = ids(schema, column.name, 3)
        elif "target_item_features" in tags:
            columns[column.name] = ids(schema, column.name, 3, 4)
        elif tags & {"positive_history", "negative_history"}:
            is_real = np.arange(LENGTH + EXTRA) >= LENGTH + EXTRA - np.array(REAL)[:, None]
            columns[column.name] = ids(schema, column.name, 3, LENGTH + EXTRA) * is_real
    if "intervals" in schema.column_names:
        is_seen = np.arange(LENGTH + EXTRA) < ENDS[..., None]
        is_seen &= np.arange(LENGTH + EXTRA) >= ENDS[..., None] - LENGTH
        hours = np.random.default_rng(2).exponential(1e4, is_seen.shape)
        columns["intervals"] = (hours * is_seen).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 2, ENDS.shape).astype(np.float32)
    return columns, labels


def as_rows(columns):
    """The samples that count as plain rows, each with its own copy of its window."""
    rows = {}
    for name, column in columns.items():
        rows_of_users = [
            column[user]
            if column.ndim == 1
            else column[user, candidate]
            if column.shape == ENDS.shape
            else column[user, candidate, ENDS[user, candidate] - LENGTH : ENDS[user, candidate]]
            if column.ndim == 3
            else column[user, ENDS[user, candidate] - LENGTH : ENDS[user, candidate]]
            for user, candidate in np.argwhere(WEIGHT > 0)
        ]
        rows[name] = np.stack(rows_of_users)
    del rows["history_end"]
    return rows


def tensors(columns):
    return {name: tf.convert_to_tensor(column) for name, column in columns.items()}


def losses_and_gradients(model, columns, labels, weight=None):
    with tf.GradientTape() as tape:
        losses, logits = model.compute_step(tensors(columns), labels, weight)
    variables = model.trainable_variables
    zero = tf.UnconnectedGradients.ZERO
    found = tape.gradient(losses.total_loss, variables, unconnected_gradients=zero)
    return losses, logits, [tf.convert_to_tensor(gradient) for gradient in found]


def assert_same_steps(ours, theirs):
    """Compare what :func:`losses_and_gradients` gave."""
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    for one, other in zip(ours[2], theirs[2], strict=True):
        assert np.linalg.norm(one - other) <= 1e-5 * max(np.linalg.norm(other), 1e-2)
