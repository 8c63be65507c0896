"""Definition of a sample: users as tensors and sample numbers in, a batch of columns out.

All of it is TensorFlow ops with static shapes: a training step may hold them, on a CPU or a GPU,
compiled by XLA or not. The same seed gives the same integers everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from ..foundation.batch_names import HISTORY_END
from ..foundation.hashing import WITHOUT_ID
from ..foundation.in_xla import search_sorted
from ..schemas.channels import NEGATIVE_HISTORY, POSITIVE_HISTORY
from .draws import row_key, sample_key, user_key
from .encodings import TimeIndices
from .sample_columns import SampleColumns

Batch = tuple[dict[str, tf.Tensor], tf.Tensor, tf.Tensor]
"""Columns, labels and weights. A weight is 0 where there is no sample, and a mean over the batch is
one over the samples that are there."""


TIMES, KNOWN = "times", "known"
SEEN, LABEL, NOW = "seen", "label", "now"
STORED, EARLIER, HASH = "stored", "earlier", "hash"
OCCURRENCES = "occurrences_{}"


class Users(NamedTuple):
    """Users' rows as tensors, one user after the other."""

    features: dict[str, tf.Tensor]
    """[users] By feature that belongs to the user; one of them identifies users."""
    items: tf.Tensor
    """[interactions] Of all histories, oldest first."""
    starts: tf.Tensor
    """[users] Where each history begins among them."""
    targets: tf.Tensor
    """[positions] The items that may be predicted, oldest first: the same as ``items``, where every
    interaction is both."""
    first_targets: tf.Tensor
    """[users] Where those of each user begin."""
    rows: tf.Tensor
    """[positions] Whose each is."""
    of_positions: dict[str, tf.Tensor]
    """[positions] By feature that belongs to the interaction. And by name, what not all have:
    ``seen``: how many of its user's history a sample sees (else all before it); ``label``: its
    label (else 1); ``now``: its time in seconds, where not every interaction is in a history;
    indices of its time (see :mod:`~.sample_columns`)."""
    more: dict[str, tf.Tensor]
    """By name, what not all have. [interactions] ``times``: when each was, in seconds.
    ``known``: ``row * (last item + 1) + item`` of all, ascending, where no negative may be an item
    of the history. ``occurrences_N``: of the target item's feature N,
    ``id * (interactions + 1) + interaction`` of all, ascending, where they are counted.
    [users] ``stored``: which row of the files each is, where these are not all;
    ``earlier``: how many samples a user had before the first position; ``hash``: of the key of a
    user without an id."""


class BehaviourSamples(tf.Module):
    """Makes batches of users' histories.

    A sample is a position of a user's history: the item there is the target, or one that is drawn
    instead, and the interactions before it are the history. Without ``candidates`` a row of
    the batch is one sample. With them it is several consecutive positions of a user, which share
    one history (see :meth:`candidates_of_users`).
    """

    def __init__(self, columns: SampleColumns, candidates: int = 1) -> None:
        super().__init__()
        self.columns = columns
        self.candidates = candidates
        self.windows = max(1, candidates // columns.of_position)

    @property
    def codes(self) -> int:
        """How many entries an interaction has: ``code = interaction * codes + which``."""
        return self.columns.of_position if self.candidates == 1 else self.windows

    def __call__(self, users: Users, entries: tf.Tensor, seeds: tf.Tensor) -> Batch:
        """Make a batch.

        Args:
            users: The users.
            entries: [rows], int64. Of plain rows ``interaction * of_position + slot``, where
                ``interaction`` is the sample's index among all and the last slot is the positive.
                Of users x candidates ``interaction * windows + positions - 1``, where
                ``interaction`` is the first of so many positions. -1 for no row.
            seeds: [2], uint64. Of the samples' draws, and of those of negative histories.
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
        interaction, slot = entries // of_position, entries % of_position
        row = tf.cast(tf.gather(users.rows, interaction), tf.int64)  # [rows], as all of these
        start = tf.cast(tf.gather(users.starts, row), tf.int64)
        position = interaction - tf.cast(tf.gather(users.first_targets, row), tf.int64)
        seen = _seen(users, interaction, position)
        is_own = tf.equal(slot, of_position - 1)
        label = tf.where(is_own, _labels(users, interaction), tf.zeros_like(slot))
        negative = tf.where(is_own, tf.zeros_like(slot), slot)
        user = self._numbers_of(users, row)
        numbered = position + _earlier(users, row)
        key = sample_key(user_key(seeds[0], user), numbered, label, negative)
        time_indices = {
            name: tf.gather(users.of_positions[name], interaction)
            for name in columns.compared_times
        }
        made = self._of_users(users, row, interaction, counts)
        if columns.reads_targets:
            target = tf.gather(users.targets, interaction)
            if columns.of_position > 1:
                target = tf.where(is_own, target, self._draw(users, key, row))
            target = tf.where(counts, target, tf.zeros_like(target))
            made |= columns.of_targets(
                target, time_indices, lambda n: self._of_user(users, n, row, interaction)
            )
            made |= self._lifetime_counts(users, start, seen, target, time_indices)
        time_indices = {name: time_index[:, None] for name, time_index in time_indices.items()}
        index = seen[:, None] + tf.range(-width, 0, dtype=tf.int64)  # [rows, width]
        real = (index >= 0) & counts[:, None]
        if columns.asks_for(POSITIVE_HISTORY):
            items = _items(users, start, index, real)
            made |= columns.of_histories(POSITIVE_HISTORY, items, time_indices)
        if columns.asks_for(NEGATIVE_HISTORY):
            drawn = columns.negatives_read
            # The oldest position of a history has draw 1, the next one draw 2, and so on.
            first = tf.maximum(width - seen, 0)[:, None]
            number = tf.range(width - drawn, width, dtype=tf.int64) - first + 1
            items = columns.items.draw(key[:, None], tf.maximum(number, 0))
            items = _padded(items, real[:, width - drawn :], width)
            made |= columns.of_histories(NEGATIVE_HISTORY, items, time_indices)
        if columns.intervals:
            made[columns.intervals] = self._intervals(users, start, interaction, index, real)
        labels = tf.cast(tf.where(counts, label, tf.zeros_like(label)), columns.label_type)
        return made, labels[:, None], tf.cast(counts, tf.float32)[:, None]

    def candidates_of_users(self, users: Users, entries: tf.Tensor, seeds: tf.Tensor) -> Batch:
        """Make users x candidates: U rows of m candidates, for p targets and histories of S.

        - a user feature [U], one that belongs to the interaction [U, m], a target item feature
          [U, m]: of each position its negatives, and after them its own item;
        - a positive history [U, S], padded with 0 on the left: what any candidate of the row may
          see; a negative history [U, S]: an item drawn for each position of the history;
        - ``history_end`` [U, p]: where the history of a position's samples ends;
        - labels and weights [U, m]: 0 for a candidate that is missing.
        """
        columns, windows, width = self.columns, self.windows, self.columns.width
        length = width + windows - 1
        counts = entries >= 0
        entries = tf.maximum(entries, 0)
        interaction, positions = entries // windows, entries % windows + 1  # [U], as all of these
        row = tf.cast(tf.gather(users.rows, interaction), tf.int64)
        start = tf.cast(tf.gather(users.starts, row), tf.int64)
        begin = interaction - tf.cast(tf.gather(users.first_targets, row), tf.int64)
        user = self._numbers_of(users, row)
        step = tf.range(windows, dtype=tf.int64)
        last = tf.minimum(step, positions[:, None] - 1)
        interactions, position = interaction[:, None] + last, begin[:, None] + last  # [U, p]
        seen = _seen(users, interactions, position)
        least, most = seen[:, 0], seen[:, -1]
        first = tf.maximum(least - width, 0)
        index = most[:, None] + tf.range(-length, 0, dtype=tf.int64)  # [U, S]
        real = (index >= first[:, None]) & counts[:, None]
        there = (step < positions[:, None]) & counts[:, None]  # [U, p]
        label = _labels(users, interactions)
        numbered = position + _earlier(users, row)[:, None]
        targets = self._candidates(users, row, interactions, numbered, user_key(seeds[0], user))
        # No negatives are drawn for a sample that was not taken.
        is_own = tf.one_hot(columns.of_position - 1, columns.of_position)
        weights = tf.maximum(tf.cast(label, tf.float32)[:, :, None], is_own)
        weights *= tf.cast(there, tf.float32)[:, :, None]  # [U, p, of_position]
        targets = tf.where(weights > 0, targets, tf.zeros_like(targets))
        shape = [-1, self.candidates]
        each, seen_by = (
            tf.reshape(tf.broadcast_to(of_window[:, :, None], tf.shape(targets)), shape)  # [U, m]
            for of_window in (interactions, seen)
        )
        rows, targets = tf.broadcast_to(row[:, None], tf.shape(each)), tf.reshape(targets, shape)
        weights = tf.reshape(weights, shape)
        time_indices = {
            name: tf.gather(users.of_positions[name], each) for name in columns.compared_times
        }
        made = self._of_users(users, row, each, counts)
        made |= columns.of_targets(
            targets, time_indices, lambda n: self._of_user(users, n, rows, each)
        )
        made |= self._lifetime_counts(users, start[:, None], seen_by, targets, time_indices)
        # One position alone has its own time; of several ones no history is looked up in time.
        time_indices = {name: time_index[:, :1] for name, time_index in time_indices.items()}
        if columns.asks_for(POSITIVE_HISTORY):
            items = _items(users, start, index, real)
            made |= columns.of_histories(POSITIVE_HISTORY, items, time_indices)
        if columns.asks_for(NEGATIVE_HISTORY):
            drawn = min(length, columns.negatives_read + windows - 1)
            negatives_key = user_key(seeds[1], user)
            newest = tf.maximum(index[:, length - drawn :], 0)
            items = columns.items.draw(row_key(negatives_key[:, None], newest, 0), 0)
            items = _padded(items, real[:, length - drawn :], length)
            made |= columns.of_histories(NEGATIVE_HISTORY, items, time_indices)
        if columns.intervals:
            sees = (index[:, None] < seen[:, :, None]) & real[:, None]  # [U, p, S]
            sees &= index[:, None] >= seen[:, :, None] - width
            index = tf.broadcast_to(index[:, None], tf.shape(sees))
            made[columns.intervals] = self._intervals(
                users, start[:, None], interactions, index, sees
            )
        made[HISTORY_END] = tf.cast(length - (most[:, None] - seen), columns.end_type)
        own = tf.cast(label, tf.float32)[:, :, None] * is_own
        return made, weights * tf.reshape(own, shape), weights

    def _numbers_of(self, users: Users, row: tf.Tensor) -> tf.Tensor:
        """Number the users of ``row``: see ``tell_users_apart`` in ``hashing.py``."""
        ids = tf.cast(tf.gather(users.features[self.columns.user], row), tf.int64)
        if HASH in users.more:
            return tf.where(ids > 0, ids, tf.gather(users.more[HASH], row))
        stored = users.more.get(STORED)
        in_files = row if stored is None else tf.gather(stored, row)
        return tf.where(ids > 0, ids, in_files + WITHOUT_ID)

    def _candidates(
        self,
        users: Users,
        row: tf.Tensor,
        interactions: tf.Tensor,
        position: tf.Tensor,
        of_user: tf.Tensor,
    ) -> tf.Tensor:
        """Of each position, the items drawn for it, and its own."""
        own = tf.gather(users.targets, interactions)[:, :, None]
        if self.columns.of_position == 1:
            return own
        negative = tf.range(self.columns.of_position - 1, dtype=tf.int64)
        key = sample_key(of_user[:, None, None], position[:, :, None], 0, negative)
        of_each = tf.broadcast_to(row[:, None, None], tf.shape(key))
        return tf.concat([self._draw(users, key, of_each), own], axis=2)

    def _of_users(
        self, users: Users, row: tf.Tensor, interaction: tf.Tensor, counts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        made = {}
        for name in self.columns.users:
            values = self._of_user(users, name, row, interaction)
            there = counts if values.shape.rank == 1 else counts[:, None]
            values = tf.where(there, values, tf.zeros_like(values))
            made[name] = tf.cast(values, self.columns.types[name])
        return made

    def _of_user(
        self, users: Users, name: str, row: tf.Tensor, interaction: tf.Tensor
    ) -> tf.Tensor:
        if name in self.columns.per_interaction:
            return tf.gather(users.of_positions[name], interaction)
        return tf.gather(users.features[name], row)

    def _draw(self, users: Users, key: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Draw a negative for each key; one that the user of ``row`` does not know, if asked to."""
        items, known = self.columns.items, users.more.get(KNOWN)
        if known is None:
            return items.draw(key, 0)

        def is_known(item: tf.Tensor) -> tf.Tensor:
            key_of_item = row * (items.last + 1) + tf.cast(item, tf.int64)
            found = tf.minimum(search_sorted(known, key_of_item), tf.size(known, tf.int64) - 1)
            return tf.equal(tf.gather(known, found), key_of_item)

        return items.draw_unknown(key, is_known)

    def _lifetime_counts(
        self,
        users: Users,
        start: tf.Tensor,
        seen: tf.Tensor,
        targets: tf.Tensor,
        time_indices: TimeIndices,
    ) -> dict[str, tf.Tensor]:
        """How often what a sample sees of its user's whole history had the target's features.

        ``start``, where the histories begin, broadcasts to ``targets``; ``seen`` and
        ``time_indices`` have their shape.
        """
        made, span = {}, tf.size(users.items, tf.int64) + 1
        for name, feature in self.columns.lifetime_counts.items():
            first = self.columns.feature_of(feature, targets, time_indices) * span + start
            keys, bounds = users.more[OCCURRENCES.format(feature)], tf.stack([first, first + seen])
            found = search_sorted(keys, bounds)
            count = tf.where(targets > 0, found[1] - found[0], tf.zeros_like(targets, tf.int64))
            made[name] = tf.math.log1p(tf.cast(count, tf.float32))
        return made

    def _intervals(
        self,
        users: Users,
        start: tf.Tensor,
        interaction: tf.Tensor,
        index: tf.Tensor,
        real: tf.Tensor,
    ) -> tf.Tensor:
        """How long before each sample the positions of its history were; 0 for padding."""
        times = users.more[TIMES]
        now = tf.gather(users.of_positions.get(NOW, times), interaction)[..., None]
        then = tf.gather(times, start[..., None] + tf.maximum(index, 0))
        since = (now - then) / self.columns.seconds
        return tf.cast(tf.where(real, since, tf.zeros_like(since)), tf.float32)


def _seen(users: Users, interaction: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """How many interactions of its user's history, from the first on, a sample sees."""
    seen = users.of_positions.get(SEEN)
    return position if seen is None else tf.cast(tf.gather(seen, interaction), tf.int64)


def _labels(users: Users, interaction: tf.Tensor) -> tf.Tensor:
    labels = users.of_positions.get(LABEL)
    return (
        tf.ones_like(interaction)
        if labels is None
        else tf.cast(tf.gather(labels, interaction), tf.int64)
    )


def _earlier(users: Users, row: tf.Tensor) -> tf.Tensor:
    """What to add to a position: no draw of an earlier dataset is made again."""
    earlier = users.more.get(EARLIER)
    return tf.zeros_like(row) if earlier is None else tf.gather(earlier, row)


def _items(users: Users, start: tf.Tensor, index: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
    items = tf.gather(users.items, start[:, None] + tf.maximum(index, 0))
    return tf.where(real, items, tf.zeros_like(items))


def _padded(items: tf.Tensor, real: tf.Tensor, length: int) -> tf.Tensor:
    """Put the newest positions at the right of a row of zeros."""
    items = tf.where(real, items, tf.zeros_like(items))
    if length == items.shape[1]:
        return items
    lacking = tf.zeros([tf.shape(items)[0], length - items.shape[1]], items.dtype)
    return tf.concat([lacking, items], axis=1)  # a GPU pads no whole numbers
