"""Keras metrics whose state does not grow with the samples, exact over ranks.

    model.compile("adam", metrics=[ms.metrics.AUC(), ms.metrics.GAUC("user_id")])

They count in whole numbers, so that the states of ranks add up to the bits of one rank that has
seen all samples. A sample whose weight is 0 does not count, any other counts once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...models.compiled_metrics import states_over_ranks
from .scored_rows import CALIBRATION_BINS, SMALLEST_PROBABILITY, THRESHOLDS

Array = npt.NDArray[Any]

LIMB_BITS = 24
LIMBS = 4
"""Parts of a number, three of them behind the point: it counts in parts of 2^-72."""
MOST_CARRIED = 1 << 16
"""Samples of one user that GAUC carries from one batch into the next."""


class WholeNumbers(tf.keras.metrics.Metric):
    """A metric whose states are whole numbers."""

    def count(self, name: str, *shape: int) -> tf.Variable:
        """Make a state that begins with zeros."""
        return self.add_weight(name, list(shape), initializer="zeros", dtype=tf.int64)

    def reset_state(self) -> None:
        """Forget what was counted."""
        for variable in self.variables:
            variable.assign(tf.zeros_like(variable))

    def exact_result(self) -> float | None:
        """Return the result in float64; None where there is none."""
        raise NotImplementedError


def over_ranks(metric: WholeNumbers) -> WholeNumbers:
    """Return a metric that has counted what all ranks have; all ranks call this."""
    total: WholeNumbers = type(metric).from_config(metric.get_config())
    for variable, state in zip(total.variables, states_over_ranks([metric]), strict=True):
        variable.assign(state)
    return total


def _samples(y_true: Any, y_pred: Any, weight: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return clicks, scores and whether each sample counts, [samples] each."""
    labels, scores = (tf.reshape(tf.cast(x, tf.float32), [-1]) for x in (y_true, y_pred))
    counted = tf.ones_like(labels, tf.bool)
    if weight is not None:
        counted = tf.reshape(tf.cast(weight, tf.bool), [-1])
    return labels > 0.5, tf.where(tf.math.is_nan(scores), 0.0, scores), counted


def _limbs(values: tf.Tensor) -> tf.Tensor:
    """Cut numbers from 0 up into whole numbers, of 24 bits behind the point: [numbers, limbs]."""
    rest, found = values, []
    for _ in range(LIMBS):
        whole = tf.floor(rest)
        found.append(tf.cast(whole, tf.int64))
        rest = (rest - whole) * 2.0**LIMB_BITS  # exact: a power of two, and fewer bits than before
    return tf.stack(found, axis=1)


def _total(limbs: Array) -> Fraction:
    """Put the sums of limbs together, [limbs]."""
    parts = (Fraction(int(limb), 1 << (LIMB_BITS * index)) for index, limb in enumerate(limbs))
    return sum(parts, Fraction())


def _near_total(limbs: tf.Tensor) -> tf.Tensor:
    """Do the same within a graph: [..., limbs] to [...], float64."""
    sizes = tf.constant([2.0 ** -(LIMB_BITS * index) for index in range(LIMBS)], tf.float64)
    return tf.reduce_sum(tf.cast(limbs, tf.float64) * sizes, axis=-1)


def _counted_in(bins: tf.Tensor, counted: tf.Tensor, number: int) -> tf.Tensor:
    """Count samples in each bin, int64: a GPU has sums of int32, and not of int64."""
    counts = tf.math.unsorted_segment_sum(tf.cast(counted, tf.int32), bins, number)
    return tf.cast(counts, tf.int64)


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class AUC(WholeNumbers):
    """``tf.keras.metrics.AUC(8000)``, the published one.

    Its thresholds are evenly spaced over 0 to 1, with trapezoids under the ROC curve.
    """

    def __init__(self, name: str = "auc", dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self.counts = self.count("counts", 2 * (THRESHOLDS - 1))  # of others, then of clicks

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count samples between thresholds.

        A label above 0.5 is a click, a sample of weight 0 is none.
        """
        clicks, scores, counted = _samples(y_true, y_pred, sample_weight)
        between = tf.math.ceil(scores * tf.constant(THRESHOLDS - 1, tf.float32)) - 1
        bins = tf.cast(tf.clip_by_value(between, 0, THRESHOLDS - 2), tf.int64)
        bins += (THRESHOLDS - 1) * tf.cast(clicks, tf.int64)
        self.counts.assign_add(_counted_in(bins, counted, 2 * (THRESHOLDS - 1)))

    def result(self) -> tf.Tensor:
        """Return the area; NaN where there are only clicks or only others."""
        rates = tf.cast(tf.reshape(self.counts, [2, -1]), tf.float64)
        rates = tf.cumsum(rates[:, ::-1], axis=1)
        rates = tf.pad(rates, [[0, 0], [1, 0]]) / rates[:, -1:]
        false_positive, true_positive = rates[0], rates[1]
        heights = (true_positive[1:] + true_positive[:-1]) / 2
        area = tf.reduce_sum((false_positive[1:] - false_positive[:-1]) * heights)
        return tf.cast(area, tf.float32)

    @property
    def samples(self) -> int:
        """How many samples counted."""
        return int(self.counts.numpy().sum())

    def roc(self) -> tuple[Array, Array] | None:
        """Return false and true positive rates by falling threshold, both from 0 to 1."""
        counts = self.counts.numpy().reshape(2, -1)
        if not counts.sum(axis=1).all():
            return None
        others, clicks = (np.concatenate([[0], np.cumsum(row[::-1])]) for row in counts)
        return others / others[-1], clicks / clicks[-1]

    def exact_result(self) -> float | None:
        """Return the area in float64; None where there is one kind of label."""
        curve = self.roc()
        return None if curve is None else float(np.trapz(curve[1], curve[0]))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class LogLoss(WholeNumbers):
    """The mean of -log of the probability that was given to what happened.

    Probabilities count no nearer to 0 and 1 than 1e-7, as in Keras.
    """

    def __init__(self, name: str = "log_loss", dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self.samples = self.count("samples")
        self.sums = self.count("sums", LIMBS)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add up losses; arguments as of :meth:`AUC.update_state`."""
        clicks, scores, counted = _samples(y_true, y_pred, sample_weight)
        bounded = tf.clip_by_value(
            tf.cast(scores, tf.float64), SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY
        )
        losses = -tf.math.log(tf.where(clicks, bounded, 1 - bounded))
        self.samples.assign_add(tf.math.count_nonzero(counted))
        self.sums.assign_add(tf.reduce_sum(_limbs(tf.where(counted, losses, 0.0)), axis=0))

    def result(self) -> tf.Tensor:
        """Return the mean; NaN where there are no samples."""
        return tf.cast(_near_total(self.sums) / tf.cast(self.samples, tf.float64), tf.float32)

    def exact_result(self) -> float | None:
        """Return the mean in float64."""
        samples = int(self.samples.numpy())
        return float(_total(self.sums.numpy()) / samples) if samples else None


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class CalibrationError(WholeNumbers):
    """The mean distance of predicted and observed click rate over 20 bins, weighted by samples."""

    def __init__(self, name: str = "calibration_error", dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self.samples = self.count("samples", CALIBRATION_BINS)
        self.clicks = self.count("clicks", CALIBRATION_BINS)
        self.sums = self.count("sums", CALIBRATION_BINS, LIMBS)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count the samples of each bin; arguments as of :meth:`AUC.update_state`."""
        clicks, scores, counted = _samples(y_true, y_pred, sample_weight)
        bins = tf.cast(scores * CALIBRATION_BINS, tf.int64)
        bins = tf.clip_by_value(bins, 0, CALIBRATION_BINS - 1)
        self.samples.assign_add(_counted_in(bins, counted, CALIBRATION_BINS))
        self.clicks.assign_add(_counted_in(bins, counted & clicks, CALIBRATION_BINS))
        scores = tf.where(counted, tf.cast(tf.maximum(scores, 0.0), tf.float64), 0.0)
        sums = tf.zeros([CALIBRATION_BINS, LIMBS], tf.int64)
        self.sums.assign_add(tf.tensor_scatter_nd_add(sums, bins[:, tf.newaxis], _limbs(scores)))

    def result(self) -> tf.Tensor:
        """Return the mean distance; NaN where there are no samples."""
        apart = tf.abs(_near_total(self.sums) - tf.cast(self.clicks, tf.float64))
        samples = tf.cast(tf.reduce_sum(self.samples), tf.float64)
        return tf.cast(tf.reduce_sum(apart) / samples, tf.float32)

    def bins(self) -> Array:
        """Return [mean prediction, observed click rate, samples] of each bin that has samples."""
        states = (self.samples.numpy(), self.clicks.numpy(), self.sums.numpy())
        found = [
            [float(_total(limbs) / int(samples)), int(clicks) / int(samples), int(samples)]
            for samples, clicks, limbs in zip(*states, strict=True)
            if samples
        ]
        return np.array(found, np.float64).reshape(-1, 3)

    def exact_result(self) -> float:
        """Return the mean distance in float64; 0 where there are no samples."""
        bins = self.bins()
        if not len(bins):
            return 0.0
        return float(np.average(np.abs(bins[:, 0] - bins[:, 1]), weights=bins[:, 2]))


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class GAUC(WholeNumbers):
    """The AUC within users, weighted by their samples; every score counts, equal ones half.

    Users with one kind of label say nothing and do not count.

    The samples of a user have to come one after another, as those of a dataset with one row per
    user do: of a user that a batch ends with, the samples are carried into the next one (at most
    65,536), and of all others nothing is kept. Samples that come back later count as another
    user's. So it measures ``evaluate`` and validation data; of training, which is shuffled, it is
    NaN.

    In ``evaluate`` samples of users without an id (0) do not count; ``ms.callbacks.Evaluation`` and
    ``merlin-sim train`` tell such users apart.

    ``user`` is the column that identifies users; None for the one that the schema tags so.
    """

    def __init__(self, user: str | None = None, name: str = "gauc", dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self.user = user
        self.samples = self.count("samples")
        self.sums = self.count("sums", LIMBS)
        self.ended = self.count("ended")
        # The first user, whose samples another rank may have begun with, and the one that goes on.
        self.first = self.count("first", 2)  # user, samples
        self.first_samples = self.count("first_samples", MOST_CARRIED)
        self.last = self.count("last", 2)
        self.last_samples = self.count("last_samples", MOST_CARRIED)
        self.too_many = self.count("too_many")
        self._users: Any = None

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {**super().get_config(), "user": self.user}

    def take_users(self, users: Any) -> None:
        """Take the users of the samples that come next, [samples]; None counts no sample."""
        self._users = users

    @tf.autograph.experimental.do_not_convert
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Count what users end, and keep those that may go on; arguments as of AUC's."""
        users, self._users = self._users, None
        if users is None:
            return
        samples = _samples(y_true, y_pred, sample_weight)
        users = tf.reshape(tf.cast(users, tf.int64), [-1])
        count = _count_users_in_one_call() if tf.executing_eagerly() else _count_users
        found = count(users, *samples, [tf.convert_to_tensor(v) for v in self.variables])
        for variable, state in zip(self.variables, found, strict=True):
            variable.assign(state)

    def result(self) -> tf.Tensor:
        """Return the mean area; NaN where no user has both kinds of label."""
        sides = ((self.first, self.first_samples), (self.last, self.last_samples))
        codes = tf.concat([samples[: which[1]] for which, samples in sides], axis=0)
        number = tf.repeat([0, 1], [self.first[1], self.last[1]])
        number -= tf.reduce_min(tf.concat([number[:1], [1]], axis=0))  # there may be no first
        areas, sizes = _areas(number, codes)
        total = _near_total(self.sums) + tf.reduce_sum(areas)
        samples = tf.cast(self.samples + tf.reduce_sum(sizes), tf.float64)
        samples = tf.where(self.too_many > 0, tf.constant(np.nan, tf.float64), samples)
        return tf.cast(total / samples, tf.float32)

    def exact_result(self) -> float | None:
        """Return the mean area in float64."""
        samples, sums, *_, too_many = self.add_up([[v.numpy() for v in self.variables]])
        if too_many:
            raise MerlinSimError(
                f"the AUC within users carries at most {MOST_CARRIED:,} samples of a user from one "
                f"batch into the next. Received: {int(too_many):,} more. A larger batch may help."
            )
        return float(_total(sums) / int(samples)) if samples else None

    def add_up(self, states: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the state of one metric for those of several ranks.

        Of the stored order each rank has had one part; where one ends, a user may go on.
        """
        samples, sums, ended, too_many = (np.sum([s[n] for s in states], 0) for n in (0, 1, 2, 7))
        users: list[int] = []
        codes: list[Array] = []
        for state in states:
            for (user, size), kept in ((state[3], state[4]), (state[5], state[6])):
                if size:
                    users += [int(user)] * int(size)
                    codes.append(kept[:size])
        if users:
            number = np.cumsum(np.append(False, np.diff(users) != 0)).astype(np.int32)
            areas, sizes = _areas(tf.constant(number), tf.constant(np.concatenate(codes)))
            samples = samples + sizes.numpy().sum()
            sums = sums + _limbs(areas).numpy().sum(axis=0)
            ended = ended + number[-1] + 1
        no_user, nothing = np.zeros(2, np.int64), np.zeros(MOST_CARRIED, np.int64)
        return [samples, sums, ended, no_user, nothing, no_user, nothing, too_many]


def _count_users(
    users: tf.Tensor,
    clicks: tf.Tensor,
    scores: tf.Tensor,
    counted: tf.Tensor,
    states: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """Return GAUC's states after some samples, in the order of its variables."""
    samples, sums, ended, first, first_samples, last, last_samples, too_many = states
    codes = tf.boolean_mask(_codes(clicks, scores), counted)
    users = tf.boolean_mask(users, counted)
    users = tf.concat([tf.fill([last[1]], last[0]), users], axis=0)
    codes = tf.concat([last_samples[: last[1]], codes], axis=0)
    begins = tf.concat([[False], users[1:] != users[:-1]], axis=0)[: tf.size(users)]
    number = tf.cumsum(tf.cast(begins, tf.int32))
    newest = tf.reduce_max(tf.concat([[0], number], axis=0))
    goes_on = number == newest
    areas, sizes = _areas(tf.boolean_mask(number, ~goes_on), tf.boolean_mask(codes, ~goes_on))
    is_first = (ended == 0) & (newest > 0)
    if_counts = tf.cast(~(is_first & (tf.range(tf.size(sizes)) == 0)), tf.int64)
    most = tf.size(first_samples)
    of_first, too_many_of_first = _carried(users, codes, is_first & (number == 0), most)
    of_last, too_many_of_last = _carried(users, codes, goes_on, most)
    return [
        samples + tf.reduce_sum(sizes * if_counts),
        sums + tf.reduce_sum(_limbs(areas) * if_counts[:, tf.newaxis], axis=0),
        ended + tf.cast(newest, tf.int64),
        tf.where(is_first, of_first[0], first),
        tf.where(is_first, of_first[1], first_samples),
        *of_last,
        too_many + too_many_of_first + too_many_of_last,
    ]


def _carried(
    users: tf.Tensor, codes: tf.Tensor, chosen: tf.Tensor, most: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the states of one user's samples, and how many have no room."""
    user = tf.concat([tf.boolean_mask(users, chosen)[:1], [0]], axis=0)[0]
    kept = tf.boolean_mask(codes, chosen)
    size = tf.minimum(tf.size(kept), most)
    filled = tf.pad(kept[:size], [[0, most - size]])
    which = tf.stack([user, tf.cast(size, tf.int64)])
    return (which, filled), tf.cast(tf.size(kept) - size, tf.int64)


@functools.cache
def _count_users_in_one_call() -> Any:
    """Return the same as one graph, for eager calls: a hundred small operations cost 10 ms."""
    states = [[], [LIMBS], [], [2], [None], [2], [None], []]
    batch = (tf.int64, tf.bool, tf.float32, tf.bool)
    signature = [tf.TensorSpec([None], dtype) for dtype in batch]
    signature.append([tf.TensorSpec(shape, tf.int64) for shape in states])
    return tf.function(_count_users, input_signature=signature, autograph=False)


def _codes(clicks: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Put score and label in one whole number each, of 33 bits, in the order of the scores."""
    bits = tf.cast(tf.bitcast(scores, tf.int32), tf.int64)
    bits = tf.where(bits < 0, -tf.bitwise.bitwise_and(bits, 0x7FFFFFFF), bits)
    return 2 * (bits + 2**31) + tf.cast(clicks, tf.int64)


def _areas(number: tf.Tensor, codes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the area of each user times its samples, float64, and its samples.

    Both are 0 for a user with one kind of label.

    Args:
        number: [samples] Users by number, from 0.
        codes: [samples] Scores and labels.
    """
    in_order = tf.sort(tf.bitwise.left_shift(tf.cast(number, tf.int64), 33) + codes)
    clicks = tf.bitwise.bitwise_and(in_order, 1)
    others = 1 - clicks
    user = tf.cast(tf.bitwise.right_shift(in_order, 33), tf.int32)
    score = tf.bitwise.right_shift(in_order, 1)  # of a user
    tie = tf.cumsum(tf.concat([[0], tf.cast(score[1:] != score[:-1], tf.int32)], axis=0))
    tie = tie[: tf.size(codes)]
    others_of_tie = tf.math.segment_sum(others, tie)
    others_of_user = tf.math.segment_sum(others, user)
    clicks_of_user = tf.math.segment_sum(clicks, user)
    before_tie = tf.gather(tf.cumsum(others_of_tie, exclusive=True), tie)
    before_user = tf.gather(tf.cumsum(others_of_user, exclusive=True), user)
    twice = clicks * (2 * (before_tie - before_user) + tf.gather(others_of_tie, tie))
    pairs = 2 * clicks_of_user * others_of_user
    area = tf.math.divide_no_nan(
        tf.cast(tf.math.segment_sum(twice, user), tf.float64), tf.cast(pairs, tf.float64)
    )
    sizes = tf.where(pairs > 0, clicks_of_user + others_of_user, 0)
    return area * tf.cast(sizes, tf.float64), sizes
