"""SIM written layer by layer with Keras, as its publication describes it: the baseline of a step.

Nothing is fused, shared or skipped: every lookup is its own, the search's best positions are
gathered, inputs of multilayer perceptrons are concatenated, AUGRU is a Keras cell in a Keras RNN.
"""

from __future__ import annotations

import tensorflow as tf
from rows.sim_rows import CATEGORIES, ITEMS, USERS

LONG, TOP_K, DIM = 90, 50, 16
HIDDEN = 6 * DIM
layers = tf.keras.layers


class AUGRUCell(layers.Layer):
    """A GRU cell whose update gate is scaled by attention."""

    def __init__(self, units):
        """Make the gates."""
        super().__init__()
        self.units = self.state_size = units
        self.gates = layers.Dense(2 * units, "sigmoid", bias_initializer="ones")
        self.candidate = layers.Dense(units, "tanh")

    def call(self, inputs, states):
        """Do one step."""
        x, attention = inputs
        (h,) = states
        reset, update = tf.split(self.gates(tf.concat([x, h], axis=1)), 2, axis=1)
        candidate = self.candidate(tf.concat([x, reset * h], axis=1))
        update = (1.0 - attention) * update
        h = update * h + (1.0 - update) * candidate
        return h, [h]


def mlp(sizes, activation, last="linear"):
    """Make a plain perceptron."""
    return tf.keras.Sequential(
        [*(layers.Dense(size, activation) for size in sizes), layers.Dense(1, last)]
    )


def classifier(sizes):
    """Make a perceptron with PReLU."""
    parts = []
    for size in sizes:
        alpha = tf.keras.initializers.Constant(0.1)
        parts += [layers.Dense(size), layers.PReLU(alpha_initializer=alpha)]
    return tf.keras.Sequential([*parts, layers.Dense(1)])


class PlainSIM(tf.keras.Model):
    """Stage one, stage two, DIEN and its auxiliary loss."""

    def __init__(self, items=ITEMS, categories=CATEGORIES, users=USERS, long=LONG):
        """Make the tables and layers."""
        super().__init__()
        self.long = long

        def table(rows):
            limit = (rows + 1) ** -0.5
            initializer = tf.keras.initializers.RandomUniform(-limit, limit)
            return layers.Embedding(rows + 1, DIM, embeddings_initializer=initializer)

        self.users, self.items, self.categories = table(users), table(items), table(categories)
        self.gru = layers.GRU(HIDDEN, return_sequences=True)
        self.augru = layers.RNN(AUGRUCell(HIDDEN))
        slope = tf.keras.initializers.Constant(0.1)
        self.project = tf.keras.Sequential([layers.Dense(HIDDEN), layers.PReLU(slope)])
        self.attention_unit = mlp((80, 40), "sigmoid")
        self.auxiliary = mlp((100, 50), "sigmoid", last="sigmoid")
        self.stage_one, self.stage_two = classifier((200,)), classifier((200, 80))

    def embed(self, item_ids, category_ids):
        """Look up items and categories."""
        return tf.concat([self.items(item_ids), self.categories(category_ids)], axis=-1)

    def attend(self, target, sequence, mask):
        """Attend to a sequence; give the sum and the weights, by which the search chooses."""
        scores = tf.reduce_sum(target[:, tf.newaxis] * sequence, axis=-1)
        masked = tf.where(mask, scores, tf.fill(tf.shape(scores), scores.dtype.min))
        weights = tf.nn.softmax(masked)
        return tf.reduce_sum(weights[:, :, tf.newaxis] * sequence, axis=1), weights

    def evolve(self, target, short, mask):
        """Give the GRU's states and the AUGRU's last."""
        states = self.gru(short)
        item = tf.tile(self.project(target)[:, tf.newaxis], [1, tf.shape(states)[1], 1])
        pair = tf.concat([item, states, item - states, item * states], axis=-1)
        scores = tf.squeeze(self.attention_unit(pair), axis=-1)
        weights = tf.nn.softmax(tf.where(mask, scores, tf.fill(tf.shape(scores), -1e9)))
        return states, self.augru((states, weights[:, :, tf.newaxis]))

    def call(self, columns, training=False):
        """Give stage two's logits, in training all that the losses need."""
        target = self.embed(columns["item_id_trgt"], columns["cat_id_trgt"])
        user = self.users(columns["user_id"])
        history = columns["item_id_pos"], columns["cat_id_pos"]
        mask = history[0] > 0
        long_mask, short_mask = mask[:, : self.long], mask[:, self.long :]
        sequence = self.embed(*history) * tf.cast(mask, tf.float32)[:, :, tf.newaxis]
        long, short = sequence[:, : self.long], sequence[:, self.long :]

        searched, weights = self.attend(target, long, long_mask)
        stage_one = self.stage_one(tf.concat([target, searched, user], axis=-1))
        best, places = tf.math.top_k(weights, TOP_K)
        found = tf.gather(long, places, batch_dims=1)
        found_mask = best > 0
        attended, _ = self.attend(target, found, found_mask)
        real = tf.cast(found_mask, tf.float32)[:, :, tf.newaxis]
        mean = tf.reduce_sum(found * real, axis=1) / (tf.reduce_sum(real, axis=1) + 1.0)
        states, final = self.evolve(target, short, short_mask)
        stage_two = self.stage_two(tf.concat([attended, mean, target, final, user], axis=-1))
        if not training:
            return stage_two
        negative = self.embed(columns["item_id_neg"], columns["cat_id_neg"])[:, self.long :]
        negative *= tf.cast(short_mask, tf.float32)[:, :, tf.newaxis]
        click = self.auxiliary(tf.concat([states[:, :-1], short[:, 1:]], axis=-1)) + 1e-6
        noclick = self.auxiliary(tf.concat([states[:, :-1], negative[:, 1:]], axis=-1)) + 1e-6
        losses = -tf.math.log(click) - tf.math.log(tf.maximum(1.0 - noclick, 1e-6))
        steps = tf.cast(short_mask[:, 1:], tf.float32)
        return stage_one, stage_two, tf.reduce_mean(steps * tf.squeeze(losses, axis=-1))


def plain_step(model, learning_rate=0.01):
    """Compile one training step with Keras's Adam."""
    optimizer = tf.keras.optimizers.legacy.Adam(learning_rate)
    entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function(reduce_retracing=True)
    def step(columns, labels):
        with tf.GradientTape() as tape:
            one, two, auxiliary = model(columns, training=True)
            labels = tf.reshape(tf.cast(labels, tf.float32), [-1, 1])
            loss = 0.5 * (entropy(labels, one) + entropy(labels, two)) + auxiliary
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(list(zip(gradients, variables)))  # noqa: B905 (graph)
        return loss

    return step
