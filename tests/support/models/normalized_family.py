"""A family of one's own whose model normalizes by statistics that move while it trains."""

from __future__ import annotations

from dataclasses import replace

import logistic_family
import tensorflow as tf

NAME = "normalized_family:FAMILY"


class NormalizedModel(logistic_family.LogisticModel):
    def __init__(self, schema, options, **kwargs):
        super().__init__(schema, options, **kwargs)
        self.family = FAMILY
        self.normalization = tf.keras.layers.BatchNormalization(momentum=0.5)
        self.normalization.build([None, len(self.names)])

    def forward(self, columns, training=False):
        numbers = [tf.reshape(tf.cast(columns[name], tf.float32), [-1]) for name in self.names]
        normalized = self.normalization(tf.stack(numbers, axis=1), training=training)
        logits = super().forward(columns).logits
        return logistic_family.Logits(logits + tf.reduce_sum(normalized, 1, keepdims=True))

    def compute_step(self, columns, labels, sample_weight=None, training=True):
        logits = self.forward(columns, training).logits
        labels = tf.reshape(tf.cast(labels, tf.float32), [-1, 1])
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        return (tf.reduce_mean(losses),), logits


FAMILY = replace(logistic_family.FAMILY, name=NAME, model="normalized_family:NormalizedModel")
