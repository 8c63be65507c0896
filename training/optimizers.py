"""Adam, lazy Adam and SGD over dense and sparse gradients, on TensorFlow's fused kernels."""

from __future__ import annotations

from typing import ClassVar

import tensorflow as tf

from .config import OPTIMIZERS
from .distributed import Gradient

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7


class Optimizer:
    """Changes variables by their gradients.

    A table's gradient is the rows that the batch named (``tf.IndexedSlices``, repeated rows
    adding up). ``lr`` is used as given. ``weight_decay`` is decoupled, as published: each step
    takes that share of a weight off it (of a table, under lazy_adam and sgd, only of the batch's
    rows).

    Args:
        variables: what is trained, in a fixed order.
        lr: learning rate.
        weight_decay: see above.
    """

    slot_names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, variables: list[tf.Variable], lr: float, weight_decay: float = 0.0) -> None:
        """Make the moments, all zero."""
        self.lr = lr
        self.weight_decay = weight_decay
        self.trained = variables
        self.iterations = tf.Variable(0, dtype=tf.int64, trainable=False, name="iterations")
        self.slots = {
            name: [tf.Variable(tf.zeros_like(v), trainable=False, name=name) for v in variables]
            for name in self.slot_names
        }

    @property
    def variables(self) -> list[tf.Variable]:
        """The optimizer's own state, in a fixed order."""
        return [self.iterations, *(slot for name in self.slot_names for slot in self.slots[name])]

    def apply(self, gradients: list[Gradient]) -> None:
        """Do one step."""
        self.iterations.assign_add(1)
        for index, (variable, gradient) in enumerate(zip(self.trained, gradients, strict=True)):
            if isinstance(gradient, tf.IndexedSlices):
                self.apply_rows(index, variable, gradient)
            else:
                self._decay(variable)
                self.apply_dense(index, variable, gradient)

    def apply_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Change all of ``variable``."""
        raise NotImplementedError

    def apply_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Change a table by the rows of ``slices``."""
        raise NotImplementedError

    def _decay(self, variable: tf.Variable) -> None:
        if self.weight_decay:
            variable.assign_sub(variable * self.weight_decay)

    def _decay_rows(self, variable: tf.Variable, rows: tf.Tensor) -> None:
        if self.weight_decay:
            lost = tf.gather(variable, rows) * self.weight_decay
            variable.scatter_sub(tf.IndexedSlices(lost, rows))


class Adam(Optimizer):
    """https://arxiv.org/abs/1412.6980; of tables too every row moves in every step."""

    slot_names = ("m", "v")

    def apply_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Let TensorFlow's fused kernel go once over weights and both moments."""
        step = tf.cast(self.iterations, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.slots["m"][index].handle,
            v=self.slots["v"][index].handle,
            beta1_power=tf.pow(BETA_1, step),
            beta2_power=tf.pow(BETA_2, step),
            lr=self.lr,
            beta1=BETA_1,
            beta2=BETA_2,
            epsilon=EPSILON,
            grad=gradient,
        )

    def apply_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Scatter the rows into a whole table, on this rank only: all rows move anyway."""
        shape = tf.shape(variable, out_type=slices.indices.dtype)
        gradient = tf.scatter_nd(slices.indices[:, tf.newaxis], slices.values, shape)
        self._decay(variable)
        self.apply_dense(index, variable, gradient)


class LazyAdam(Adam):
    """Adam that leaves rows of tables, and their moments, alone until a batch names them."""

    def apply_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Add up repeated rows, then change only those."""
        rows, places = tf.unique(slices.indices)
        gradient = tf.math.unsorted_segment_sum(slices.values, places, tf.size(rows))
        self._decay_rows(variable, rows)
        first, second = self.slots["m"][index], self.slots["v"][index]
        m = BETA_1 * tf.gather(first, rows) + (1 - BETA_1) * gradient
        v = BETA_2 * tf.gather(second, rows) + (1 - BETA_2) * tf.square(gradient)
        first.scatter_update(tf.IndexedSlices(m, rows))
        second.scatter_update(tf.IndexedSlices(v, rows))
        step = tf.cast(self.iterations, tf.float32)
        rate = self.lr * tf.sqrt(1 - tf.pow(BETA_2, step)) / (1 - tf.pow(BETA_1, step))
        variable.scatter_sub(tf.IndexedSlices(rate * m / (tf.sqrt(v) + EPSILON), rows))


class SGD(Optimizer):
    """Stochastic gradient descent without momentum."""

    def apply_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Take ``lr`` times the gradient off."""
        variable.assign_sub(self.lr * gradient)

    def apply_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Take ``lr`` times the rows' gradients off; repeated rows add up."""
        if self.weight_decay:
            self._decay_rows(variable, tf.unique(slices.indices)[0])
        variable.scatter_sub(tf.IndexedSlices(self.lr * slices.values, slices.indices))


_CLASSES = dict(zip(OPTIMIZERS, (Adam, LazyAdam, SGD), strict=True))


def make_optimizer(
    name: str, variables: list[tf.Variable], lr: float, weight_decay: float = 0.0
) -> Optimizer:
    """Make the optimizer of this published name."""
    return _CLASSES[name](variables, lr, weight_decay)
