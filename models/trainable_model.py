"""What every model of this package does as a Keras model: compile, fit, evaluate and predict."""

from __future__ import annotations

from typing import Any, ClassVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.tf.core.prediction import Prediction
from merlin.models.tf.distributed.backend import hvd
from merlin.models.tf.utils.tf_utils import call_layer

from ..foundation.batch_names import HISTORY_END
from ..foundation.ranks import Ranks
from ..ranks import collectives
from ..steps.compiled_optimizer import find_optimizer
from ..steps.loss_scale import LossScale
from ..steps.train_step import TrainStep, counted_samples
from .blocks.embeddings.spread_tables import check_whole
from .compiled_metrics import read_metrics
from .losses import EvaluatedLoss, LossMeans, read_loss
from .merlin_input import Input, open_input
from .saving import check_callbacks

unpack = tf.keras.utils.unpack_x_y_sample_weight


class TrainableModel(mm.Model):
    """A ``merlin.models.tf.Model`` whose training step is that of ``merlin-sim train``.

    Of Merlin's Model this passes by: the losses and gradients of ``train_step`` and ``test_step``
    (the model's own objective takes their place), and in ``compile`` Horovod's
    ``DistributedOptimizer``, the learning rate times the number of ranks, and Keras's loss
    scaling (:class:`~merlin_sim.steps.train_step.TrainStep` averages and scales). Metrics, their
    names and Merlin's further arguments are Merlin's.

    A subclass has ``output_block``, ``compute_step(columns, labels, sample_weight, training)`` and
    tells its columns.
    """

    evaluated_loss: EvaluatedLoss = EvaluatedLoss()
    """What ``compute_step`` takes for the evaluated logit."""

    takes_candidates: ClassVar[bool] = False
    """Whether it takes batches of users x candidates, with ``history_end``."""

    _loss_means: LossMeans
    _xla = False

    @property
    def label(self) -> str:
        """The label's column."""
        raise NotImplementedError

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included."""
        raise NotImplementedError

    @property
    def served_columns(self) -> tuple[str, ...]:
        """What inference reads."""
        raise NotImplementedError

    @property
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """The mean of the objective and of its parts, and the compiled metrics."""
        return [*self._loss_means.means, *super().metrics]

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool | None = None,
        steps_per_execution: int | None = None,
        jit_compile: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Choose how to train.

        Args:
            optimizer: ``"adam"``, ``"lazy_adam"``, ``"sgd"`` and ``"adagrad"`` (of embedding
                tables by rows) are those of this package; any other name or Keras optimizer is
                taken as it is. Its learning rate is used as given, whatever the number of ranks.
            loss: Loss of the evaluated output, of labels and probabilities; None for binary
                cross-entropy, as published.
            metrics: Metrics of the evaluated output; None for Merlin's for binary outputs.
            loss_weights: Weight of ``loss``; None for the published one.
            weighted_metrics: As in Keras.
            run_eagerly: As in Keras.
            steps_per_execution: As in Keras.
            jit_compile: Compile forward and backward pass with XLA; averaging over ranks, update
                and metrics stay outside.
            **kwargs: What else Merlin's ``compile`` takes.
        """
        output = self.output_block.full_name
        self.evaluated_loss = read_loss(loss, loss_weights, output)
        super().compile(
            find_optimizer(optimizer, self.trainable_variables),
            loss,
            read_metrics("metrics", metrics, output),
            loss_weights,
            read_metrics("weighted_metrics", weighted_metrics, output),
            run_eagerly,
            steps_per_execution,
            **kwargs,
        )
        self._xla = bool(jit_compile)
        self.loss_scale = LossScale(self.dtype_policy.name == "mixed_float16")
        self._step = TrainStep(
            self, self.optimizer, self.loss_scale, collectives.joined(), xla=self._xla
        )

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train on one batch; histories may be ragged tensors too."""
        columns, labels, weight = self._batch(data, "train_pre", training=True)
        result, counted = self._step.run_alone(columns, labels, weight)
        self._loss_means.update(result.losses, counted)
        outputs = self._prediction(result.logits, labels, weight)
        logs: dict[str, Any] = self.train_compute_metrics(outputs, self.compiled_metrics)
        return {**logs, "loss_batch": result.losses[0]}

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluate one batch; histories may be ragged tensors too."""
        columns, labels, weight = self._batch(data, "test_pre", testing=True)
        losses, logits = self._compiled(self._evaluate_batch)(columns, labels, weight)
        self._loss_means.update(losses, counted_samples(labels, weight))
        outputs = self._prediction(logits, labels, weight)
        return {**self.compute_metrics(outputs), "loss_batch": losses[0]}

    def predict_step(self, data: Any) -> tf.Tensor:
        """Return the probabilities of one batch, [samples, 1]; of a feed's fillers none."""
        columns, _, weight = unpack(data)
        columns = self._through("predict_pre", self._prepare_features(columns), None)[0]
        probabilities = self._compiled(self)(columns)
        if weight is None or HISTORY_END not in columns:
            return probabilities
        return tf.boolean_mask(probabilities, tf.reshape(weight, [-1]) != 0)

    def _evaluate_batch(self, columns: Any, labels: tf.Tensor, weight: Any) -> Any:
        return self.compute_step(columns, labels, weight, training=False)

    def _compiled(self, function: Any) -> Any:
        if not self._xla:
            return function
        return tf.function(function, jit_compile=True, autograph=False)

    def _batch(self, data: Any, stage: str, **mode: bool) -> tuple[Any, tf.Tensor, Any]:
        """Bring a batch's histories to one length, its labels and weights to [batch].

        Those of users x candidates stay as they are, [users, candidates].
        """
        columns, labels, weight = unpack(data)
        columns, labels = self._through(stage, self._prepare_features(columns), labels, **mode)
        labels = labels[self.label] if isinstance(labels, dict) else labels
        if HISTORY_END not in columns:
            labels, weight = (
                None if part is None else tf.reshape(part, [-1]) for part in (labels, weight)
            )
        return columns, labels, weight

    def _through(self, stage: str, columns: Any, labels: Any, **mode: bool) -> tuple[Any, Any]:
        """Send a batch through the ``pre`` that ``fit``, ``evaluate`` or ``predict`` was given."""
        pre = getattr(self, stage, None)
        if pre is None:
            return columns, labels
        given = call_layer(pre, columns, targets=labels, features=columns, **mode)
        if isinstance(given, Prediction):
            return given.outputs, given.targets
        return given if isinstance(given, tuple) else (given, labels)

    def to_probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Return click probabilities, float32, of evaluated logits."""
        return self.output_block.post(logits)

    def _prediction(self, logits: tf.Tensor, labels: tf.Tensor, weight: Any) -> Prediction:
        """Return what metrics read: every sample, but of users x candidates no filler."""
        counts = None if weight is None or labels.shape.rank < 2 else tf.reshape(weight, [-1]) != 0
        logits, labels, weight = (
            None if part is None else tf.reshape(part, [-1, 1]) for part in (logits, labels, weight)
        )
        if counts is not None:
            parts = logits, labels, weight
            logits, labels, weight = (tf.boolean_mask(part, counts) for part in parts)
        probabilities = self.to_probabilities(logits)
        labels = tf.cast(labels, probabilities.dtype)
        name = self.output_block.full_name
        return Prediction({name: probabilities}, {name: labels}, {name: weight})

    def fit(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Do as Merlin's ``fit`` does; ``x`` and ``validation_data`` may be opened datasets.

        Of an opened dataset directory the feed of ``merlin-sim train`` gives every row once an
        epoch (with ``steps_per_epoch``, one after another), in an order that depends on Python's
        ``random``. ``batch_size`` counts the rows of all ranks then, and two ranks end with the
        weights of one. Of a directory with one row per user, a model that can takes users x 16
        candidates where ``batch_size`` is a multiple of that on every rank and no
        ``class_weight`` is given, and plain rows elsewhere. All else is dealt out to ranks by
        whoever made it.
        """
        check_callbacks(kwargs.get("callbacks"))
        check_whole(self, "fit")
        ranks = collectives.joined()
        self._share_state(ranks)
        endless = kwargs.get("steps_per_epoch") is not None
        shuffle = bool(kwargs.get("shuffle", True))
        epoch = int(kwargs.get("initial_epoch", 0))
        # Keras weighs classes by one label a row.
        takes_candidates = self.takes_candidates and kwargs.get("class_weight") is None
        training = self._input(batch_size, takes_candidates).training(
            x, ranks, shuffle, epoch, endless
        )
        validation_size = kwargs.get("validation_batch_size") or batch_size
        validation = self._input(validation_size, self.takes_candidates).stored(
            kwargs.get("validation_data"), self.training_columns
        )
        with open_input(training) as x, open_input(validation) as validation_data:
            kwargs["validation_data"] = validation_data
            return super().fit(x, y, batch_size, **kwargs)

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Do as Merlin's ``evaluate`` does; ``x`` may be an opened dataset directory too.

        Every rank evaluates all rows of the directory's test files.
        """
        data = self._input(batch_size, self.takes_candidates)
        with open_input(data.stored(x, self.training_columns)) as x:
            return super().evaluate(x, y, batch_size, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Do as Merlin's ``predict`` does; ``x`` may be an opened dataset directory too.

        Every rank gives one probability for each row of the directory's test files, as stored.
        """
        data = self._input(batch_size, self.takes_candidates)
        with open_input(data.stored(x, self.served_columns)) as x:
            return super().predict(x, batch_size, **kwargs)

    def _input(self, batch_size: int | None, takes_candidates: bool) -> Input:
        return Input(self.training_columns, self._prepare_features, batch_size, takes_candidates)

    def _share_state(self, ranks: Ranks) -> None:
        """Give every rank the first rank's weights and optimizer, before the first step."""
        if ranks.size > 1 and self._is_compiled:
            state = [*self.variables, *self.optimizer.variables(), *self.loss_scale.variables]
            collectives.broadcast(state, ranks)

    def _add_horovod_callbacks(self, callbacks: Any) -> list[Any]:
        """Average the epoch's metrics over ranks before any other callback reads them."""
        callbacks = self._validate_callbacks(callbacks)
        average = hvd.callbacks.MetricAverageCallback
        if any(isinstance(callback, average) for callback in callbacks):
            return list(callbacks)
        return [average(), *callbacks]

    def _create_loss(self, losses: Any = None) -> Any:
        """Keep what ``compile`` was given, for a saved model; ``evaluated_loss`` is what counts."""
        return losses or {}

    def _create_optimizer(self, optimizer: Any) -> Any:
        """Keep Merlin from averaging once more, and from multiplying the rate by the ranks."""
        return optimizer

    def _get_optimizer(self, optimizer: Any) -> Any:
        """Keep Keras from wrapping the optimizer: the training step scales the loss."""
        return optimizer

    def _maybe_build(self, inputs: Any) -> None:
        # Merlin's would prepare the features of each batch a second time, to learn their shapes.
        tf.keras.Model._maybe_build(self, inputs)
