"""Random items as TensorFlow ops: functions of a seed, a user and a position alone.

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable
Pseudorandom Number Generators, OOPSLA 2014). Numbers of 64 bits add and multiply modulo 2^64 in
every kernel, so a draw is the same integer on a CPU, on a GPU, and compiled by XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..foundation import hashing
from ..foundation.hashing import UNIT, mix_arrays
from ..foundation.in_xla import search_sorted

MOST_DRAWS = 32
"""How often an item is drawn before the next one that the user has not is taken."""
MOST_REPEATED = 1 << 26
"""Interactions up to which each stands in memory, so that a draw is one lookup."""
FRESH_SALT = 0xF2E54
AGAIN_SALT = 0xA6A12
POSITION_SALT = 0x91ACE


def fresh_seed(seed: int, epoch: int) -> int:
    """The seed of an epoch's own draws; no epoch has that of the fixed draws.

    >>> fresh_seed(5, 0) != fresh_seed(5, 1)
    True
    """
    salt = mix_arrays(np.array([FRESH_SALT + (epoch << 20)], np.uint64))
    return int(mix_arrays(salt ^ np.uint64(seed))[0])


def position_seed(seed: int) -> int:
    """The seed of negative histories' items, for all samples that see their positions."""
    return int(mix_arrays(np.array([POSITION_SALT], np.uint64) ^ np.uint64(seed))[0])


def mix(value: tf.Tensor) -> tf.Tensor:
    """Scatter 64 bits, as :func:`~merlin_sim.foundation.hashing.mix_arrays` does.

    >>> int(mix(tf.constant(5, tf.uint64))) == int(hashing.mix_arrays(np.array([5], np.uint64))[0])
    True
    """
    value = value + _constant(hashing.GOLDEN)
    value = _xor(value, _shift(value, 30)) * _constant(hashing.MIX_1)
    value = _xor(value, _shift(value, 27)) * _constant(hashing.MIX_2)
    return _xor(value, _shift(value, 31))


def user_key(seed: tf.Tensor, user: tf.Tensor) -> tf.Tensor:
    """Return the key that the numbers of all rows of a user are made of."""
    return mix(_xor(mix(seed), tf.cast(user, tf.uint64)))


def row_key(of_user: tf.Tensor, position: tf.Tensor, label: tf.Tensor | int) -> tf.Tensor:
    """The number that stands for a position of a user, as a positive or as a negative."""
    return mix(_xor(of_user, tf.cast(2 * position + label, tf.uint64)))


def sample_key(
    of_user: tf.Tensor, position: tf.Tensor, label: tf.Tensor, negative: tf.Tensor
) -> tf.Tensor:
    """:func:`row_key`, and a number of its own for each further negative of a positive."""
    key = row_key(of_user, position, label)
    further = mix(_xor(key, _constant(hashing.TWIN_SALT) + tf.cast(negative, tf.uint64)))
    return tf.where(negative > 0, further, key)


class Items:
    """Distribution that items are drawn from: as often as each was taken, or uniform.

    Counts, [items + 1], say by id how often each one is drawn among all draws.
    """

    def __init__(self, counts: npt.NDArray[np.int64], dtype: tf.DType) -> None:
        """Keep the item of each interaction where that is not too much, else where each begins."""
        self.dtype = dtype
        cumulative = np.cumsum(counts, dtype=np.int64)
        self.size = int(cumulative[-1])
        self.last = len(counts) - 1
        self._cumulative = tf.constant(cumulative)
        self._repeated: tf.Tensor | None = None
        if self.size <= MOST_REPEATED:
            ids = np.arange(self.last + 1, dtype=dtype.as_numpy_dtype)
            self._repeated = tf.constant(np.repeat(ids, counts))

    def draw(self, key: tf.Tensor, number: tf.Tensor | int) -> tf.Tensor:
        """Draw the item that has this number among the draws of a key."""
        if isinstance(number, tf.Tensor) or number:
            key += tf.cast(number, tf.uint64) * _constant(hashing.GOLDEN)
        unit = tf.cast(_shift(mix(key), 11), tf.float64)  # in units of 2^-53: exact, as is UNIT
        index = tf.cast(unit * (UNIT * self.size), tf.int64)
        if self._repeated is not None:
            return tf.gather(self._repeated, index)
        return tf.cast(search_sorted(self._cumulative, index, "right"), self.dtype)

    def draw_unknown(self, key: tf.Tensor, is_known: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Draw item 0 of a key, again while the user knows it.

        After :data:`MOST_DRAWS` draws, of a user who knows nearly all items, the next item that
        the user does not know is taken. A user who knows all keeps what was drawn.
        """

        def draw_again(number: tf.Tensor, item: tf.Tensor, known: tf.Tensor) -> Any:
            salt = _constant(AGAIN_SALT) + tf.cast(number, tf.uint64)
            item = tf.where(known, self.draw(mix(_xor(key, salt)), 0), item)
            return number + 1, item, is_known(item)

        def take_next(number: tf.Tensor, item: tf.Tensor, unfit: tf.Tensor) -> Any:
            following = tf.where(item < self.last, item + 1, tf.ones_like(item))
            item = tf.where(unfit, following, item)
            return number + 1, item, self._is_unfit(item, is_known)

        one = tf.constant(1, tf.int64)
        item = self.draw(key, 0)
        _, item, _ = tf.while_loop(
            lambda number, item, known: (number < MOST_DRAWS) & tf.reduce_any(known),
            *(draw_again, (one, item, is_known(item))),
        )
        _, item, _ = tf.while_loop(
            lambda number, item, unfit: (number <= self.last) & tf.reduce_any(unfit),
            *(take_next, (one, item, self._is_unfit(item, is_known))),
        )
        return item

    def _is_unfit(self, item: tf.Tensor, is_known: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        taken = tf.gather(self._cumulative, item) - tf.gather(self._cumulative, item - 1)
        return is_known(item) | (taken == 0)


def _constant(value: Any) -> tf.Tensor:
    return tf.constant(int(value), tf.uint64)


def _xor(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.bitwise_xor(one, other)


def _shift(value: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(value, tf.constant(bits, tf.uint64))
