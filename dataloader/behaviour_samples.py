"""What a sample is: users as tensors and sample numbers in, a batch of columns out.

All of it is TensorFlow ops with static shapes: a training step may hold them, on a CPU or a GPU,
compiled by XLA or not. The same seed gives the same integers everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..foundation.batch_names import HISTORY_END
from ..schemas.channels import NEGATIVE_HISTORY, POSITIVE_HISTORY, TARGET_ITEM_FEATURES
from .draws import row_key, sample_key, user_key
from .sample_columns import SampleColumns

Batch = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]
"""Columns, labels and weights. A weight is 0 where there is no sample, and a mean over the batch is
one over the samples that are there."""


TIMES, SAME_TIME, KNOWN, STORED = "times", "same_time", "known", "stored"


class Users(NamedTuple):
    """Users' rows as tensors, one history after the other."""

    features: dict[str, tf.Tensor]
    """[users] By user feature, its ids; the first tells users apart."""
    items: tf.Tensor
    """[interactions] All histories' items, oldest first."""
    starts: tf.Tensor
    """[users] Where each history begins among them."""
    rows: tf.Tensor
    """[interactions] Whose each is."""
    more: dict[str, tf.Tensor]
    """[interactions] By name, what not all have. ``times``: when each was, in seconds.
    ``same_time``: how many of those before each have its own time, and are not seen by it.
    ``known``: ``row * (last item + 1) + item`` of all, ascending, where no negative may be an item
    of the history. [users] ``stored``: which row of the files each is, where these are not all."""


class BehaviourSamples(tf.Module):
    """Makes batches of users' histories.

    A sample is a position of a user's history: the item there is the target, or one that is drawn
    in its place, and the interactions before it are the history. Without ``candidates`` a row of
    the batch is one sample. With them it is several consecutive positions of a user, which share
    one history (see :meth:`candidates_of_users`).

    Args:
        columns: Which columns a batch has, and what they are made of.
        candidates: Samples of a row; 1 for plain rows.
    """

    def __init__(self, columns: SampleColumns, candidates: int = 1) -> None:
        """Store the arguments."""
        super().__init__()
        self.columns = columns
        self.candidates = candidates
        self.windows = max(1, candidates // columns.of_position)

    @property
    def codes(self) -> int:
        """How many entries there are for each interaction: ``code = place * codes + which``."""
        return self.columns.of_position if self.candidates == 1 else self.windows

    def __call__(self, users: Users, entries: tf.Tensor, seeds: tf.Tensor) -> Batch:
        """Make a batch.

        Args:
            users: The users.
            entries: [rows], int64. Of plain rows ``place * of_position + slot``, where ``place``
                is the sample's among all interactions and the last slot is the positive. Of users x
                candidates ``place * windows + positions - 1``, where ``place`` is that of the first
                of so many positions. -1 for no row.
            seeds: [2], uint64. Of the samples' draws, and of those beside positions.
        """
        if self.candidates == 1:
            return self.rows(users, entries, seeds)
        return self.candidates_of_users(users, entries, seeds)

    def rows(self, users: Users, entries: tf.Tensor, seeds: tf.Tensor) -> Batch:
        """Make one row for each sample: lists are [rows, width], the newest last.

        Labels and weights are [rows, 1].
        """
        columns, width = self.columns, self.columns.width
        counts = entries >= 0
        entries = tf.maximum(entries, 0)
        of_position = tf.constant(columns.of_position, tf.int64)
        place, slot = entries // of_position, entries % of_position
        row = tf.cast(tf.gather(users.rows, place), tf.int64)  # [rows], as all of these
        start = tf.cast(tf.gather(users.starts, row), tf.int64)
        position = place - start
        seen = _seen(users, place, position)
        label = tf.cast(tf.equal(slot, of_position - 1), tf.int64)
        negative = tf.where(label == 1, tf.zeros_like(slot), slot)
        user = tf.gather(users.features[columns.user], row)
        key = sample_key(user_key(seeds[0], user), position, label, negative)
        made = columns.features_of_users(users.features, row, counts)
        if columns.asks_for(TARGET_ITEM_FEATURES):
            target = self._targets(users, place, row, key, label == 1)
            target = tf.where(counts, target, tf.zeros_like(target))
            made |= columns.features_of(TARGET_ITEM_FEATURES, target)
        index = seen[:, None] + tf.range(-width, 0, dtype=tf.int64)  # [rows, width]
        real = (index >= 0) & counts[:, None]
        if columns.asks_for(POSITIVE_HISTORY):
            made |= columns.features_of(POSITIVE_HISTORY, _items(users, start, index, real))
        if columns.asks_for(NEGATIVE_HISTORY):
            drawn = columns.negatives_read
            # The oldest place of a history has draw 1, the next one draw 2, and so on.
            first = tf.maximum(width - seen, 0)[:, None]
            number = tf.range(width - drawn, width, dtype=tf.int64) - first + 1
            items = columns.items.draw(key[:, None], tf.maximum(number, 0))
            made |= columns.features_of(
                NEGATIVE_HISTORY, _padded(items, real[:, width - drawn :], width)
            )
        if columns.intervals:
            made[columns.intervals] = self._intervals(users, start, position, index, real)
        labels = tf.cast(tf.where(counts, label, tf.zeros_like(label)), columns.label_type)
        return made, labels[:, None], tf.cast(counts, tf.float32)[:, None]

    def candidates_of_users(self, users: Users, entries: tf.Tensor, seeds: tf.Tensor) -> Batch:
        """Make users x candidates: U rows of m candidates, p positions and S places.

        - a user feature [U], a target item feature [U, m]: of each position its negatives, and
          after them the positive;
        - a positive history [U, S], padded with 0 on the left: what any candidate of the row may
          see; a negative history [U, S]: an item drawn for each of the same places;
        - ``history_end`` [U, p]: where the history of a positive and its negatives ends;
        - labels and weights [U, m]: 0 for a candidate that is missing.
        """
        columns, windows, width = self.columns, self.windows, self.columns.width
        length = width + windows - 1
        counts = entries >= 0
        entries = tf.maximum(entries, 0)
        place, positions = entries // windows, entries % windows + 1  # [U], as all of these
        row = tf.cast(tf.gather(users.rows, place), tf.int64)
        start = tf.cast(tf.gather(users.starts, row), tf.int64)
        begin = place - start
        of_user = user_key(seeds[0], tf.gather(users.features[columns.user], row))
        step = tf.range(windows, dtype=tf.int64)
        position = begin[:, None] + tf.minimum(step, positions[:, None] - 1)  # [U, p]
        seen = _seen(users, start[:, None] + position, position)
        least, most = seen[:, 0], seen[:, -1]
        first = tf.maximum(least - width, 0)
        index = most[:, None] + tf.range(-length, 0, dtype=tf.int64)  # [U, S]
        real = (index >= first[:, None]) & counts[:, None]
        there = (step < positions[:, None]) & counts[:, None]  # [U, p]
        targets = self._candidates(users, start, row, position, of_user)  # [U, p, of_position]
        there = tf.broadcast_to(there[:, :, None], tf.shape(targets))
        targets = tf.where(there, targets, tf.zeros_like(targets))
        shape = [-1, self.candidates]
        made = columns.features_of_users(users.features, row, counts)
        made |= columns.features_of(TARGET_ITEM_FEATURES, tf.reshape(targets, shape))
        if columns.asks_for(POSITIVE_HISTORY):
            made |= columns.features_of(POSITIVE_HISTORY, _items(users, start, index, real))
        if columns.asks_for(NEGATIVE_HISTORY):
            drawn = min(length, columns.negatives_read + windows - 1)
            beside = user_key(seeds[1], tf.gather(users.features[columns.user], row))
            newest = tf.maximum(index[:, length - drawn :], 0)
            items = columns.items.draw(row_key(beside[:, None], newest, 0), 0)
            made |= columns.features_of(
                NEGATIVE_HISTORY, _padded(items, real[:, length - drawn :], length)
            )
        if columns.intervals:
            sees = (index[:, None] < seen[:, :, None]) & real[:, None]  # [U, p, S]
            sees &= index[:, None] >= seen[:, :, None] - width
            starts = start[:, None]
            made[columns.intervals] = self._intervals(
                users, starts, position, tf.broadcast_to(index[:, None], tf.shape(sees)), sees
            )
        made[HISTORY_END] = tf.cast(length - (most[:, None] - seen), columns.end_type)
        weights = tf.cast(there, tf.float32)
        positive = tf.one_hot(columns.of_position - 1, columns.of_position)
        labels = weights * positive
        return made, tf.reshape(labels, shape), tf.reshape(weights, shape)

    def _candidates(
        self,
        users: Users,
        start: tf.Tensor,
        row: tf.Tensor,
        position: tf.Tensor,
        of_user: tf.Tensor,
    ) -> tf.Tensor:
        """Of each position, the items drawn in its place, and its own."""
        negative = tf.range(self.columns.of_position - 1, dtype=tf.int64)
        key = sample_key(of_user[:, None, None], position[:, :, None], 0, negative)
        of_each = tf.broadcast_to(row[:, None, None], tf.shape(key))
        drawn = self._draw(users, key, of_each)
        taken = tf.gather(users.items, start[:, None] + position)
        return tf.concat([drawn, taken[:, :, None]], axis=2)

    def _targets(
        self,
        users: Users,
        place: tf.Tensor,
        row: tf.Tensor,
        key: tf.Tensor,
        positive: tf.Tensor,
    ) -> tf.Tensor:
        return tf.where(positive, tf.gather(users.items, place), self._draw(users, key, row))

    def _draw(self, users: Users, key: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Draw a negative for each key; one that the user of ``row`` does not know, if asked to."""
        items, known = self.columns.items, users.more.get(KNOWN)
        if known is None:
            return items.draw(key, 0)

        def is_known(item: tf.Tensor) -> tf.Tensor:
            wanted = row * (items.last + 1) + tf.cast(item, tf.int64)
            found = tf.searchsorted(known, tf.reshape(wanted, [-1]), out_type=tf.int64)
            found = tf.minimum(tf.reshape(found, tf.shape(wanted)), tf.size(known, tf.int64) - 1)
            return tf.equal(tf.gather(known, found), wanted)

        return items.draw_unknown(key, is_known)

    def _intervals(
        self,
        users: Users,
        start: tf.Tensor,
        position: tf.Tensor,
        index: tf.Tensor,
        real: tf.Tensor,
    ) -> tf.Tensor:
        """How long before each sample the places of its history were; 0 where there is nothing."""
        now = tf.gather(users.more[TIMES], start + position)[..., None]
        then = tf.gather(users.more[TIMES], start[..., None] + tf.maximum(index, 0))
        since = (now - then) / self.columns.seconds
        return tf.cast(tf.where(real, since, tf.zeros_like(since)), tf.float32)


def _seen(users: Users, place: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """How many interactions, from the first on, the samples at some places see."""
    same_time = users.more.get(SAME_TIME)
    if same_time is None:
        return position
    return position - tf.cast(tf.gather(same_time, place), tf.int64)


def _items(users: Users, start: tf.Tensor, index: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    """The items of histories at ``index`` [rows, places]; 0 where there is nothing."""
    items = tf.gather(users.items, start[:, None] + tf.maximum(index, 0))
    return tf.where(real, items, tf.zeros_like(items))


def _padded(items: tf.Tensor, real: tf.Tensor, length: int) -> tf.Tensor:
    """Put the newest places at the right of a row of zeros."""
    items = tf.where(real, items, tf.zeros_like(items))
    lacking = length - items.shape[1]
    return tf.pad(items, [[0, 0], [lacking, 0]]) if lacking else items
