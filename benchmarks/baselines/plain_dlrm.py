"""DLRM as one writes it in Keras, layer by layer, to measure against."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


class PlainDLRM(tf.keras.Model):
    """The published sizes: 512, 256, 128 below, 1024, 1024, 512, 256, 1 above."""

    def __init__(self, cardinalities, dim=128, bottom=(512, 256, 128), top=(1024, 1024, 512, 256)):
        super().__init__()
        layers = tf.keras.layers
        self.tables = [layers.Embedding(rows, dim) for rows in cardinalities]
        self.bottom = [layers.Dense(units, activation="relu") for units in bottom]
        self.top = [*(layers.Dense(units, activation="relu") for units in top), layers.Dense(1)]
        count = len(cardinalities) + 1
        rows, columns = np.tril_indices(count, -1)
        self.pairs = rows * count + columns
        self.count = count

    def call(self, inputs):
        """Return logits of numbers, [batch, 13], and ids, [batch, 26]."""
        numbers, ids = inputs
        for layer in self.bottom:
            numbers = layer(numbers)
        vectors = [table(ids[:, index]) for index, table in enumerate(self.tables)]
        stacked = tf.stack([numbers, *vectors], axis=1)
        products = tf.matmul(stacked, stacked, transpose_b=True)
        flat = tf.reshape(products, [-1, self.count**2])
        hidden = tf.concat([numbers, tf.gather(flat, self.pairs, axis=1)], axis=1)
        for layer in self.top:
            hidden = layer(hidden)
        return hidden


def plain_step(model, optimizer, dense=False):
    """Make the compiled training step.

    Keras's layer gives a table a gradient of rows; with ``dense`` it is made as large as the table,
    as gradients of plain variables are.
    """
    loss_of = tf.keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function
    def step(numbers, ids, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels[:, tf.newaxis], model((numbers, ids)))
        gradients = tape.gradient(loss, model.trainable_variables)
        if dense:
            gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        pairs = zip(gradients, model.trainable_variables)  # noqa: B905  autograph has no strict
        optimizer.apply_gradients(pairs)
        return loss

    return step
