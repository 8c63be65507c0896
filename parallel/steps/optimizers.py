"""Adam, lazy Adam, SGD and Adagrad over dense gradients and rows, on fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ..ranks.collectives import Gradient
from . import OPTIMIZERS
from .table_rows import added_up


@tf.keras.utils.register_keras_serializable(package="merlin_sim")
class WarmUpAndDecay(tf.keras.optimizers.schedules.LearningRateSchedule):
    """DLRM's schedule, for any model: linear warm-up, constant, polynomial decay.

        rate(step) = rate * step / warmup_steps                  while step < warmup_steps
        rate(step) = rate * ((end - step) / decay_steps) ** power   from decay_start_step on

    with end = decay_start_step + decay_steps, from which on the rate is 0. Steps count from 0.
    ``warmup_steps`` of 0 is no warm-up; ``decay_start_step`` of None is no decay.

    >>> schedule = WarmUpAndDecay(24.0, warmup_steps=4, decay_start_step=6, decay_steps=2)
    >>> [float(schedule(step)) for step in range(9)]
    [0.0, 6.0, 12.0, 18.0, 24.0, 24.0, 24.0, 6.0, 0.0]
    """

    def __init__(
        self,
        rate: float,
        warmup_steps: int = 0,
        decay_start_step: int | None = None,
        decay_steps: int | None = None,
        decay_power: float = 2.0,
    ) -> None:
        super().__init__()
        self.rate = rate
        self.warmup_steps = warmup_steps
        self.decay_start_step = decay_start_step
        self.decay_steps = decay_steps
        self.decay_power = decay_power

    def __call__(self, step: Any) -> tf.Tensor:
        """Return the rate of a step, float32."""
        step = tf.cast(step, tf.float32)
        factor = tf.constant(1.0)
        if self.decay_start_step is not None and self.decay_steps is not None:
            end = float(self.decay_start_step + self.decay_steps)
            left = tf.clip_by_value((end - step) / self.decay_steps, 0.0, 1.0)
            factor = tf.pow(left, self.decay_power)
        if self.warmup_steps:
            factor *= tf.minimum(step / self.warmup_steps, 1.0)
        return self.rate * factor

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the schedule."""
        return {
            "rate": self.rate,
            "warmup_steps": self.warmup_steps,
            "decay_start_step": self.decay_start_step,
            "decay_steps": self.decay_steps,
            "decay_power": self.decay_power,
        }


Rate = float | Callable[[tf.Tensor], tf.Tensor]
"""A learning rate, or a schedule: ``tf.keras.optimizers.schedules.LearningRateSchedule``."""

register = tf.keras.utils.register_keras_serializable(package="merlin_sim")


class Optimizer(tf.keras.optimizers.Optimizer):
    """A Keras optimizer whose table gradients stay rows (``tf.IndexedSlices``).

    Repeated rows add up. The learning rate is used as given, whatever the number of ranks.

    Args:
        learning_rate: a number, which Keras's callbacks may change, or a schedule.
        weight_decay: decoupled, as published: each step takes that share of a weight off it,
            whatever the learning rate (of a table, under lazy_adam and sgd, only of the batch's
            rows).
        table_weight_decay: in its place for embedding tables; None: the same for all. Tables are
            the variables called ``embeddings``, as Keras and Merlin call them.
        table_lr_scale: what their learning rate is multiplied by.
        **keras: what Keras's own optimizers take: ``name``, ``clipnorm``, ``use_ema`` and so on.
    """

    slot_names: ClassVar[tuple[str, ...]] = ()
    moves_every_row: ClassVar[bool] = False
    """Whether every row of a table moves in every step. XLA compiles only such updates: their
    shapes are known before the batch is."""

    def __init__(
        self,
        learning_rate: Rate,
        weight_decay: float,
        table_weight_decay: float | None = None,
        table_lr_scale: float = 1.0,
        **keras: Any,
    ) -> None:
        """Take the hyperparameters; ``build`` makes the moments."""
        self.table_weight_decay = table_weight_decay
        self.table_lr_scale = table_lr_scale
        with tf.name_scope(""):  # names that depend on the variables only
            super().__init__(weight_decay=weight_decay, **{"jit_compile": False, **keras})
            self._learning_rate = self._build_learning_rate(learning_rate)

    def build(self, var_list: list[tf.Variable]) -> None:
        """Make the moments, all zero and named after their variables.

        They stand in the order of ``var_list``: all of one kind, then all of the next.
        """
        if getattr(self, "_built", False):
            return
        super().build(var_list)
        with tf.init_scope(), tf.name_scope(""):
            self.slots = {
                name: [self.make_slot(variable, name) for variable in var_list]
                for name in self.slot_names
            }
        self._variables += [slot for name in self.slot_names for slot in self.slots[name]]
        if self.use_ema:
            self.slots["average"] = self._model_variables_moving_average
        self._built = True

    def make_slot(self, variable: tf.Variable, name: str) -> tf.Variable:
        """Make one variable's part of a moment: as large as the variable, unless overridden."""
        return _zeros(variable, name)

    def update_step(self, gradient: Gradient, variable: tf.Variable) -> None:
        """Change one variable, as Keras asks for it, on the device that has it."""
        index = self._index_dict[self._var_key(variable)]
        with tf.device(variable.device):
            if isinstance(gradient, tf.IndexedSlices):
                self.update_rows(index, variable, gradient)
            else:
                self.decay(variable)
                self.update_dense(index, variable, gradient)

    def update_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Change all of ``variable``."""
        raise NotImplementedError

    def update_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Change a table by the rows of ``slices``."""
        raise NotImplementedError

    def rate_of(self, variable: tf.Variable) -> tf.Tensor:
        """Return the learning rate of a variable, float32."""
        rate = tf.cast(self.learning_rate, tf.float32)
        return rate * self.table_lr_scale if is_table(variable) else rate

    def decay_of(self, variable: tf.Variable) -> float:
        """Return the share of a variable that a step takes off it."""
        share = self.weight_decay
        if self.table_weight_decay is not None and is_table(variable):
            share = self.table_weight_decay
        return float(share) if share and self._use_weight_decay(variable) else 0.0

    def decay(self, variable: tf.Variable) -> None:
        """Take the decay off all of ``variable``."""
        share = self.decay_of(variable)
        if share:
            variable.assign_sub(variable * share)

    def decay_rows(self, variable: tf.Variable, rows: tf.Tensor) -> None:
        """Take the decay off rows of a table."""
        share = self.decay_of(variable)
        if share:
            lost = tf.gather(variable, rows) * share
            variable.scatter_sub(tf.IndexedSlices(lost, rows))

    def _apply_weight_decay(self, variables: list[tf.Variable]) -> None:
        """Do nothing: ``update_step`` decays; Keras's own multiplies by the learning rate."""

    def _deduplicate_sparse_grad(self, grads: list[Gradient]) -> list[Gradient]:
        """Leave it to ``update_rows``, which adds repeated rows up where that is needed."""
        return grads

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the optimizer."""
        rate = self._serialize_hyperparameter(self._learning_rate)
        rate = rate if isinstance(rate, dict) else float(rate)
        return {
            **super().get_config(),
            "table_weight_decay": self.table_weight_decay,
            "table_lr_scale": self.table_lr_scale,
            "learning_rate": rate,
        }


@register
class Adam(Optimizer):
    """https://arxiv.org/abs/1412.6980; of tables too every row moves in every step."""

    slot_names = ("m", "v")
    moves_every_row = True

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float = 0.0,
        name: str = "adam",
        **keras: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay, name=name, **keras)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def _internal_apply_gradients(self, grads_and_vars: Any) -> Any:
        """Compute once what is the same for all variables."""
        step = tf.cast(self.iterations + 1, tf.float32)
        beta_1, beta_2, epsilon = map(tf.constant, (self.beta_1, self.beta_2, self.epsilon))
        self._of_all = {
            "beta1_power": tf.pow(beta_1, step),
            "beta2_power": tf.pow(beta_2, step),
            "beta1": beta_1,
            "beta2": beta_2,
            "epsilon": epsilon,
        }
        return super()._internal_apply_gradients(grads_and_vars)

    def update_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Within ``apply_gradients`` let a fused kernel go once over weights and both moments."""
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self.slots["m"][index].handle,
            v=self.slots["v"][index].handle,
            lr=self.rate_of(variable),
            grad=gradient,
            **self._of_all,
        )

    def update_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Scatter the rows into a whole table, on this rank only: all rows move anyway."""
        shape = tf.shape(variable, out_type=slices.indices.dtype)
        gradient = tf.scatter_nd(slices.indices[:, tf.newaxis], slices.values, shape)
        self.decay(variable)
        self.update_dense(index, variable, gradient)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the optimizer."""
        betas = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), **betas}


@register
class LazyAdam(Adam):
    """Adam that leaves rows of tables, and their moments, alone until a batch names them."""

    moves_every_row = False

    def __init__(self, learning_rate: Rate = 0.001, name: str = "lazy_adam", **adam: Any) -> None:
        super().__init__(learning_rate, name=name, **adam)

    def update_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Add up repeated rows, then change only those."""
        slices = added_up(slices)
        rows, gradient = slices.indices, slices.values
        self.decay_rows(variable, rows)
        first, second = self.slots["m"][index], self.slots["v"][index]
        m = self.beta_1 * tf.gather(first, rows) + (1 - self.beta_1) * gradient
        v = self.beta_2 * tf.gather(second, rows) + (1 - self.beta_2) * tf.square(gradient)
        first.scatter_update(tf.IndexedSlices(m, rows))
        second.scatter_update(tf.IndexedSlices(v, rows))
        step = tf.cast(self.iterations + 1, tf.float32)
        correction = tf.sqrt(1 - tf.pow(self.beta_2, step)) / (1 - tf.pow(self.beta_1, step))
        rate = self.rate_of(variable) * correction
        variable.scatter_sub(tf.IndexedSlices(rate * m / (tf.sqrt(v) + self.epsilon), rows))


@register
class SGD(Optimizer):
    """Stochastic gradient descent without momentum."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        weight_decay: float = 0.0,
        name: str = "sgd",
        **keras: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay, name=name, **keras)

    def update_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Take the learning rate times the gradient off, in one go."""
        rate = tf.cast(self.rate_of(variable), variable.dtype)
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)

    def update_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Take the learning rate times the rows' gradients off; repeated rows add up."""
        if self.decay_of(variable):
            self.decay_rows(variable, tf.unique(slices.indices)[0])
        lost = self.rate_of(variable) * slices.values
        variable.scatter_sub(tf.IndexedSlices(lost, slices.indices))


@register
class Adagrad(Optimizer):
    """Adagrad, of tables row-wise: one float a row, the sum of its gradients' mean squares.

        s_row += mean(gradient_row ** 2),  row -= rate * gradient_row / (sqrt(s_row) + epsilon)

    Of all else each weight has a sum of its own. Rows that a batch names several times are added
    up first.
    """

    slot_names = ("sum",)

    def __init__(
        self,
        learning_rate: Rate = 0.005,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        name: str = "adagrad",
        **keras: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay, name=name, **keras)
        self.epsilon = epsilon

    def make_slot(self, variable: tf.Variable, name: str) -> tf.Variable:
        """Make a table's sums [rows, 1]."""
        return _zeros(variable, name, columns=1 if is_table(variable) else None)

    def update_dense(self, index: int, variable: tf.Variable, gradient: tf.Tensor) -> None:
        """Add the squares up, and take a step."""
        added = self.slots["sum"][index].assign_add(_squares(variable, gradient))
        variable.assign_sub(self.rate_of(variable) * gradient / (tf.sqrt(added) + self.epsilon))

    def update_rows(self, index: int, variable: tf.Variable, slices: tf.IndexedSlices) -> None:
        """Do the same to the rows that the batch names."""
        slices = added_up(slices)
        rows, gradient = slices.indices, slices.values
        self.decay_rows(variable, rows)
        sums = self.slots["sum"][index]
        added = tf.gather(sums, rows) + _squares(variable, gradient)
        sums.scatter_update(tf.IndexedSlices(added, rows))
        lost = self.rate_of(variable) * gradient / (tf.sqrt(added) + self.epsilon)
        variable.scatter_sub(tf.IndexedSlices(lost, rows))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the optimizer."""
        return {**super().get_config(), "epsilon": self.epsilon}


def _squares(variable: tf.Variable, gradient: tf.Tensor) -> tf.Tensor:
    """Return what a gradient adds to Adagrad's sums: of a table the mean over each row."""
    squares = tf.square(gradient)
    return tf.reduce_mean(squares, axis=1, keepdims=True) if is_table(variable) else squares


def is_table(variable: tf.Variable) -> bool:
    """Return whether a variable is an embedding table, by the name that Keras gives to one."""
    name: str = variable.name
    return name.partition(":")[0].rpartition("/")[2] == "embeddings"


CLASSES: dict[str, Callable[..., Optimizer]] = dict(
    zip(OPTIMIZERS, (Adam, LazyAdam, SGD, Adagrad), strict=True)
)


def make_optimizer(
    name: str,
    variables: list[tf.Variable],
    lr: Rate,
    weight_decay: float = 0.0,
    table_weight_decay: float | None = None,
    table_lr_scale: float = 1.0,
) -> Optimizer:
    """Make the optimizer of this published name, with its moments."""
    of_tables = {"table_weight_decay": table_weight_decay, "table_lr_scale": table_lr_scale}
    optimizer = CLASSES[name](lr, weight_decay=weight_decay, **of_tables)
    optimizer.build(variables)
    return optimizer


def _zeros(variable: tf.Variable, name: str, columns: int | None = None) -> tf.Variable:
    owner = variable.name.partition(":")[0]
    shape = variable.shape if columns is None else [variable.shape[0], columns]
    with tf.device(variable.device):
        zeros = tf.zeros(shape, variable.dtype)
        return tf.Variable(zeros, trainable=False, name=f"{owner}/{name}")


def find_optimizer(given: Any, variables: list[tf.Variable]) -> Any:
    """Turn what ``compile`` was given into a Keras optimizer, with its moments.

    ``given`` is a name in :data:`CLASSES`, or what Keras takes: another name, a configuration, any
    Keras optimizer. One that averages over ranks or scales losses by itself is refused: the
    training step does both, whatever the optimizer.
    """
    if isinstance(given, str) and given.lower() in CLASSES:
        given = CLASSES[given.lower()]()
    optimizer = tf.keras.optimizers.get(given, use_legacy_optimizer=True)
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    wrapped = isinstance(optimizer, scaling) or hasattr(optimizer, "inner_optimizer")
    if wrapped or type(optimizer).__module__.startswith("horovod"):
        raise MerlinSimError(
            "`optimizer` should be a plain Keras optimizer: the training step averages gradients "
            "over ranks and scales the loss in mixed_float16 itself. "
            f"Received: {type(optimizer).__name__} of {type(optimizer).__module__}."
        )
    if isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer):
        optimizer._create_all_weights(variables)  # a skipped step must not be where they are made
    else:
        optimizer.build(variables)
    return optimizer


def rate_variable(optimizer: Any) -> tf.Variable | None:
    """Return the learning rate of any Keras optimizer, which callbacks may change.

    None where it is a schedule. Keras counts it among none of an optimizer's variables.
    """
    is_legacy = isinstance(optimizer, tf.keras.optimizers.legacy.Optimizer)
    rate = getattr(optimizer, "learning_rate" if is_legacy else "_learning_rate", None)
    return rate if isinstance(rate, tf.Variable) else None


@dataclass(frozen=True)
class ScaledRows:
    """Scales the moves of the first rows of tables, whatever the optimizer.

    Example:
        >>> table = tf.Variable([[1.0], [1.0]])
        >>> scaled = ScaledRows({table.ref(): 1}, 0.25)
        >>> moves = tf.fill([2, 1], 4.0)
        >>> scaled.while_applied([table], [moves], lambda: table.assign_add(moves))
        >>> table.numpy().tolist()
        [[2.0], [5.0]]

    What an optimizer keeps of these rows goes on as if they had moved.
    """

    rows: Mapping[Any, int]
    """Reference of a table -> how many of its first rows are scaled."""
    rate: float
    """The part that they move by: 0 leaves them as they are."""

    def while_applied(
        self,
        variables: Sequence[tf.Variable],
        gradients: Sequence[Gradient],
        apply: Callable[[], Any],
        moves_every_row: bool = True,
    ) -> None:
        """Apply gradients, then take back what is too much.

        Unless every row moves, only the scaled rows that have a gradient are read and written.
        """
        scaled: list[tuple[tf.Variable, tf.Tensor]] = []
        for variable, gradient in zip(variables, gradients, strict=True):
            rows = self.rows.get(variable.ref())
            if rows and not moves_every_row and isinstance(gradient, tf.IndexedSlices):
                indices = gradient.indices
                scaled.append((variable, tf.boolean_mask(indices, indices < rows)))
            elif rows:
                scaled.append((variable, tf.range(rows)))
        before = [tf.gather(variable, chosen) for variable, chosen in scaled]
        with tf.control_dependencies(before):
            apply()
        for (variable, chosen), were in zip(scaled, before, strict=True):
            with tf.device(variable.device):
                moved = tf.gather(variable, chosen) - were
                kept = were + self.rate * moved if self.rate else were
                variable.scatter_update(tf.IndexedSlices(kept, chosen))
