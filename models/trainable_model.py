"""Base of every model of this package as a Keras model: compile, fit, evaluate and predict."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.tf.core.prediction import Prediction
from merlin.models.tf.utils.tf_utils import call_layer

from ..dataloader.loader import scalar_on_device
from ..dataloader.open_loader import user_column
from ..foundation.batch_names import HISTORY_END
from ..foundation.gpu_forms import has_gpu_forms
from ..foundation.ranks import Ranks
from ..parallel.ranks import collectives
from ..parallel.steps.dropout_seeds import DropoutSeeds
from ..parallel.steps.fused import MANY_SAMPLES
from ..parallel.steps.loss_scale import LossScale
from ..parallel.steps.optimizers import ScaledRows, find_optimizer, rate_variable
from ..parallel.steps.sample_batch import SampleBatch, mean_over_counted
from ..parallel.steps.table_rows import TableGradient
from ..parallel.steps.train_step import TrainStep, batch_spec, counted_samples
from .blocks.checks import OptionError
from .blocks.embeddings.sharded_tables import own_variables, table_parts
from .compiled_metrics import MetricsOverRanks, give_users, read_metrics, require_users_together
from .loader_steps import Executed, FitProgress, Graphs, LoaderSteps, StepsDone, nth
from .losses import EvaluatedLoss, LossMeans, read_loss
from .merlin_input import Input
from .saving import check_callbacks

STEPS_ON_GPU = 16
"""Steps of an execution on a GPU, unless ``compile`` is given another number."""
FUNCTIONS = {
    "_training_steps": "train_function",
    "_test_steps": "test_function",
    "_prediction_steps": "predict_function",
}
"""What Keras makes of each."""
unpack = tf.keras.utils.unpack_x_y_sample_weight


class TrainableModel(mm.Model):
    """A ``merlin.models.tf.Model`` whose training step is the published one.

    ``merlin-sim train`` is ``compile`` and ``fit`` with callbacks. Of an opened dataset directory,
    or a loader of this package, samples are made on the device within the step.

    Of Merlin's Model this passes by: the losses and gradients of ``train_step`` and ``test_step``
    (the model's own objective replaces them), and in ``compile`` Horovod's
    ``DistributedOptimizer``, the learning rate times the number of ranks, and Keras's loss
    scaling (:class:`~..parallel.steps.train_step.TrainStep` averages and scales). Metrics, their
    names and Merlin's further arguments are Merlin's; over ranks their states are added up.

    A subclass has ``output_block``, ``compute_step(columns, labels, sample_weight, training)`` and
    names its columns.
    """

    evaluated_loss: EvaluatedLoss = EvaluatedLoss()
    """What ``compute_step`` takes for the evaluated logit."""
    takes_candidates: ClassVar[bool] = False
    """Whether it takes batches of users x candidates, with ``history_end``."""
    progress: FitProgress
    """How far ``fit`` has come."""
    _loss_means: LossMeans
    _metrics_every = 1
    _xla = False
    _training_steps: LoaderSteps | None = None
    _test_steps: LoaderSteps | None = None
    _prediction_steps: LoaderSteps | None = None
    _class_weight: tf.Tensor | None = None

    @property
    def label(self) -> str:
        """The label's column."""
        raise NotImplementedError

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included; none where only loaders are read."""
        return ()

    @property
    def served_columns(self) -> tuple[str, ...]:
        """What inference reads; likewise."""
        return ()

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
        *,
        loss_scale: float | None = None,
        fp16_compression: bool = False,
        dense_tables: bool = False,
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
            steps_per_execution: As in Keras: so many steps run in one graph, between which no
                Python runs and nothing is read from the device. None is 1, on a GPU 16.
            jit_compile: Compile with XLA. On one GPU the whole step is one program; elsewhere
                forward and backward pass are.
            loss_scale: In mixed precision, a scale of the loss that stays; None for a dynamic one.
            fp16_compression: See :func:`~..parallel.ranks.collectives.average_gradients`.
            dense_tables: See there.
            **kwargs: What else Merlin's ``compile`` takes.
        """
        output = self.output_block.full_name
        self.evaluated_loss = read_loss(loss, loss_weights, output)
        has_gpu = has_gpu_forms()
        steps = steps_per_execution or (STEPS_ON_GPU if has_gpu and not run_eagerly else 1)
        super().compile(
            find_optimizer(optimizer, self.trainable_variables),
            loss,
            read_metrics("metrics", metrics, output),
            loss_weights,
            read_metrics("weighted_metrics", weighted_metrics, output),
            run_eagerly,
            steps,
            **kwargs,
        )
        ranks = collectives.joined()
        self._xla = bool(jit_compile)
        self._runs_several_steps = steps > 1
        compiles = getattr(self.optimizer, "moves_every_row", False)
        self._is_one_program = self._xla and has_gpu and ranks.size == 1 and compiles
        self.loss_scale = LossScale(self.dtype_policy.name == "mixed_float16", loss_scale)
        self._fp16_compression, self._dense_tables = fp16_compression, dense_tables
        self._step = self._make_step()
        self._graphs = Graphs()
        self._done = StepsDone()

    def _make_step(self, scaled: ScaledRows | None = None) -> TrainStep:
        return TrainStep(
            self,
            self.optimizer,
            self.loss_scale,
            collectives.joined(),
            self._xla and not self._is_one_program,
            self._fp16_compression,
            self._dense_tables,
            own_variables(self),
            scaled,
            TableGradient.WHOLE_TABLE if self._is_one_program else None,
            self._is_one_program,
        )

    # A step on what a loader gives

    def make_train_function(self, force: bool = False) -> Any:
        """Return what runs an execution: of a loader's steps, or as Keras has it."""
        steps = self._training_steps
        if steps is not None:
            self.train_function = lambda _: self._train_on(steps)
        return super().make_train_function(force and steps is None)

    def make_test_function(self, force: bool = False) -> Any:
        """Return what evaluates steps: of a loader, or as Keras has it."""
        steps = self._test_steps
        if steps is not None:
            self.test_function = lambda _: self._on_steps(steps, self._test_made)[-1]
        return super().make_test_function(force and steps is None)

    def make_predict_function(self, force: bool = False) -> Any:
        """Return what predicts steps: of a loader, or as Keras has it."""
        steps, run = self._prediction_steps, self._predict_made
        if steps is not None:
            self.predict_function = lambda _: tf.concat(self._on_steps(steps, run), 0)
        return super().make_predict_function(force and steps is None)

    def step_on(self, loader: Any) -> Callable[..., Executed]:
        """Return the step that ``fit`` traces for a loader of this package.

        It takes what the loader's ``inputs`` give for a step; [2] int64, the seed and how many
        steps were done before; and whether this rank was asked to stop.
        """
        self._prepare()
        return functools.partial(self._made_step, LoaderSteps(loader).make)

    def _train_on(self, steps: LoaderSteps) -> dict[str, tf.Tensor]:
        """Run one execution."""
        parts = []
        logs: dict[str, tf.Tensor] = {}
        seed = int(getattr(steps.loader, "seed", 0))
        for given, count in steps.take(self._steps_at_once):
            done = self._done.on_device(seed, self.progress.steps)
            stop = scalar_on_device(bool(self.progress.stop_asked()))
            self.progress.advance(count)
            part, logs, done = self._execution(steps.make)(given, tf.constant(count), done, stop)
            self._done.hold(seed, self.progress.steps, done)
            parts.append(part)
        self.progress.executed = parts[0] if len(parts) == 1 else Executed.joined(parts)
        return logs

    def _on_steps(self, steps: LoaderSteps, run: Callable[..., Any]) -> list[Any]:
        """Run what neither trains nor draws, step by step."""
        found = []
        for given, count in steps.take(self._steps_at_once):
            compiled = self._in_graph(run, steps.make)
            found += [compiled(nth(given, scalar_on_device(number))) for number in range(count)]
        return found

    @property
    def _steps_at_once(self) -> int:
        return 1 if self._steps_per_execution is None else int(self._steps_per_execution.numpy())

    def _execution(self, make: Any) -> Callable[..., Any]:
        """Return what runs steps of a loader, compiled once for each thing that it depends on."""
        weights = None if self._class_weight is None else self._class_weight.ref()
        depends = (getattr(self, "train_pre", None), weights, self._metrics_every == 1)

        def graph() -> Callable[..., Any]:
            step: Any = functools.partial(self._made_step, make)
            if self._is_one_program:
                step = tf.function(step, jit_compile=True, autograph=False)
            # Keras counts fewer at an epoch's end, perhaps one: the graph serves those too.
            run = self._several_steps if self._runs_several_steps else self._single_step
            return self._graph_of(functools.partial(run, step))

        return self._graphs.get(("train", make, *depends), graph)

    def _in_graph(self, run: Callable[..., Any], make: Any) -> Callable[..., Any]:
        pre = [getattr(self, stage, None) for stage in ("test_pre", "predict_pre")]
        return self._graphs.get(
            (run.__name__, make, *pre), lambda: self._graph_of(functools.partial(run, make))
        )

    def _graph_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Put a function of what a loader gives, and of scalars, into a graph."""
        if self.run_eagerly:
            return function
        if self._xla:
            compiled: Callable[..., Any] = tf.function(function, autograph=False)
            return compiled
        graphs: dict[Any, Any] = {}

        def run(*arguments: Any) -> Any:
            # With shapes that are known, TensorFlow adds up in an order that differs between runs.
            given, *scalars = arguments
            spec = [batch_spec(given), *map(tf.TensorSpec.from_tensor, scalars)]
            key = tuple(tf.nest.flatten(spec))
            if key not in graphs:
                graphs[key] = tf.function(function, input_signature=spec, autograph=False)
            return graphs[key](*arguments)

        return run

    def _single_step(self, step: Any, given: Any, count: Any, done: Any, stop: Any) -> Any:
        del count  # it is 1
        executed = step(given, done, stop)
        logs = self._logs(executed.losses)
        return Executed(*(part[tf.newaxis] for part in executed)), logs, done + [0, 1]

    def _several_steps(self, step: Any, given: Any, count: Any, done: Any, stop: Any) -> Any:
        """Run steps one after the other, without leaving the graph.

        What a step is given stays on the device: on the host are but the counter and its end.
        """
        shapes = Executed([None], [], [], [], [])
        kinds = Executed(tf.float32, tf.bool, tf.bool, tf.float32, tf.float32)
        arrays = Executed(
            *(
                tf.TensorArray(kind, size=count, element_shape=shape)
                for kind, shape in zip(kinds, shapes, strict=True)
            )
        )

        def body(
            number: tf.Tensor, index: tf.Tensor, done: tf.Tensor, arrays: Executed
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Executed]:
            executed = step(nth(given, index), done, stop)
            written = [a.write(number, part) for a, part in zip(arrays, executed, strict=True)]
            return number + 1, index + 1, done + [0, 1], Executed(*written)

        _, _, done, arrays = tf.while_loop(
            lambda number, *_: number < count,
            body,
            (0, tf.zeros([], tf.int64), done, arrays),
            parallel_iterations=1,
        )
        executed = Executed(*(array.stack() for array in arrays))
        return executed, self._logs(executed.losses[-1]), done

    def _logs(self, losses: tf.Tensor) -> dict[str, tf.Tensor]:
        return {**self.metrics_results(), "loss_batch": losses[0]}

    def _made_step(self, make: Any, given: Any, done: tf.Tensor, stop: tf.Tensor) -> Executed:
        """Make the batch of a step and train on it."""
        self._dropout_seeds.start_step(done[0], done[1])
        batch = self._changed(self._step.made(given, make), "train_pre", training=True)
        result = self._step.run_made(batch, stop)
        # The losses are of the global batch: the states of all ranks make up its samples once.
        self._loss_means.update(result.losses, result.samples / self._step.ranks.size)
        self._update_train_metrics(self._prediction(result.logits, batch.labels, batch.weights))
        scale = tf.identity(self.loss_scale.scale)
        return Executed(result.losses, result.stopped, result.finite, result.samples, scale)

    def _update_train_metrics(self, outputs: Prediction) -> None:
        def update() -> tf.Tensor:
            self.compute_metrics(outputs, self.compiled_metrics)
            return tf.constant(True)

        if self._metrics_every == 1:
            update()
        else:
            tf.cond(
                self._should_compute_train_metrics_for_batch, update, lambda: tf.constant(False)
            )

    def _test_made(self, make: Any, given: Any) -> dict[str, tf.Tensor]:
        """Make a batch and evaluate it."""
        batch = self._changed(SampleBatch(*make(given)), "test_pre", testing=True)
        counted = tf.math.count_nonzero(batch.weights, dtype=tf.float32)
        return self._evaluate_batch(mean_over_counted(batch), counted)

    def _predict_made(self, make: Any, given: Any) -> tf.Tensor:
        """Make a batch and predict the samples that are there."""
        batch = self._changed(SampleBatch(*make(given)), "predict_pre")
        probabilities = self._compiled("predict", self)(batch.columns)
        return tf.boolean_mask(probabilities, tf.reshape(batch.weights, [-1]) != 0)

    def _changed(self, batch: SampleBatch, stage: str, **mode: bool) -> SampleBatch:
        """Send a batch through ``pre``, and give its samples the weights of their classes."""
        columns, labels = self._through(stage, batch.columns, batch.labels, **mode)
        weights = batch.weights
        if stage == "train_pre" and self._class_weight is not None:
            weights *= tf.gather(self._class_weight, tf.cast(labels, tf.int32))
        return SampleBatch(columns, labels, weights)

    # A step on any other data

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
        batch = self._batch(data, "test_pre", testing=True)
        return self._evaluate_batch(batch, counted_samples(batch.labels, batch.weights))

    def predict_step(self, data: Any) -> tf.Tensor:
        """Return the probabilities of one batch, [samples, 1]."""
        columns, _, _ = unpack(data)
        columns = self._through("predict_pre", self._prepare_features(columns), None)[0]
        return self._compiled("predict", self)(columns)

    def _evaluate_batch(self, batch: SampleBatch, counted: tf.Tensor) -> dict[str, tf.Tensor]:
        """Evaluate a batch, of which so many samples count."""
        step = functools.partial(self.compute_step, training=False)
        losses, logits = self._compiled("evaluate", step)(*batch)
        self._loss_means.update(losses, counted)
        outputs = self._prediction(logits, batch.labels, batch.weights)
        self._give_users(batch)
        return {**self.compute_metrics(outputs), "loss_batch": losses[0]}

    def _compiled(self, name: str, function: Any) -> Any:
        if not self._xla:
            return function
        return self._graphs.get(
            name, lambda: tf.function(function, jit_compile=True, autograph=False)
        )

    def _batch(self, data: Any, stage: str, **mode: bool) -> SampleBatch:
        """Bring a batch's histories to one length, its labels and weights to [batch].

        Those of users x candidates stay as they are, [users, candidates].
        """
        columns, labels, weight = unpack(data)
        columns, labels = self._through(stage, self._prepare_features(columns), labels, **mode)
        if HISTORY_END not in columns:
            labels, weight = (
                None if part is None else tf.reshape(part, [-1]) for part in (labels, weight)
            )
        return SampleBatch(columns, labels, weight)

    def _through(self, stage: str, columns: Any, labels: Any, **mode: bool) -> tuple[Any, Any]:
        """Send a batch through the method's ``pre``, and choose the labels of the one output."""
        pre = getattr(self, stage, None)
        if pre is not None:
            given = call_layer(pre, columns, targets=labels, features=columns, **mode)
            if isinstance(given, Prediction):
                columns, labels = given.outputs, given.targets
            else:
                columns, labels = given if isinstance(given, tuple) else (given, labels)
        return columns, labels[self.label] if isinstance(labels, dict) else labels

    def to_probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Return click probabilities, float32, of evaluated logits."""
        return self.output_block.post(logits)

    def _prediction(self, logits: tf.Tensor, labels: tf.Tensor, weight: Any) -> Prediction:
        """Return what metrics read; those without weights pass by fillers, by Keras's mask."""
        has_fillers = weight is not None and labels.shape.rank == 2
        logits, labels, weight = (
            None if part is None else tf.reshape(part, [-1, 1]) for part in (logits, labels, weight)
        )
        probabilities = self.to_probabilities(logits)
        if has_fillers:  # of users x candidates, or of a loader: what has no weight is no sample
            probabilities._keras_mask = tf.reshape(weight, [-1]) != 0
        labels = tf.cast(labels, probabilities.dtype)
        name = self.output_block.full_name
        return Prediction({name: probabilities}, {name: labels}, {name: weight})

    def fit(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Do as Merlin's ``fit`` does; ``x`` and ``validation_data`` may be opened datasets.

        Of an opened dataset directory every row comes once an epoch (with ``steps_per_epoch``, one
        after another), in an order that depends on Python's ``random``. ``batch_size`` counts the
        rows of all ranks then, and two ranks end with the weights of one. Of a directory with one
        row per user, a model that can takes users x 16 candidates where ``batch_size`` is a
        multiple of that on every rank, and plain rows elsewhere. All else is dealt out to ranks by
        whoever made it. As ``validation_data`` a directory gives its validation rows.

        The steps on a directory are traced as they are written: a metric, layer or block of your
        own that chooses by a tensor there needs ``tf.cond``, as autograph would make it of ``if``.
        """
        check_callbacks(kwargs.get("callbacks"))
        ranks = collectives.joined()
        self.share_state(ranks)
        self._metrics_every = kwargs.get("train_metrics_steps", 1)
        x = self.input_of(batch_size).training(
            x,
            ranks,
            bool(kwargs.get("shuffle", True)),
            int(kwargs.get("initial_epoch", 0)),
            kwargs.get("steps_per_epoch"),
        )
        validation_size = kwargs.get("validation_batch_size") or batch_size
        validation = self.input_of(validation_size).validating(
            kwargs.get("validation_data"), self.training_columns
        )
        with (
            self._steps_of("_training_steps", x) as given,
            self._steps_of("_test_steps", validation) as kwargs["validation_data"],
        ):
            if self._training_steps is not None:
                self._begin(self._training_steps, kwargs)
            try:
                return super().fit(given, y, batch_size, **kwargs)
            finally:
                for callback in self.progress.callbacks if self._training_steps else ():
                    close = getattr(callback, "close", None)
                    if close is not None:
                        close()

    def _begin(self, steps: LoaderSteps, kwargs: dict[str, Any]) -> None:
        """Take up where the steps stand, and what Keras would do to batches."""
        done = self.progress.steps if hasattr(self, "progress") else 0
        epoch = int(kwargs.get("initial_epoch", 0))
        callbacks = kwargs.get("callbacks") or ()
        callbacks = getattr(callbacks, "callbacks", callbacks)  # a CallbackList's
        callbacks = callbacks if isinstance(callbacks, Sequence) else [callbacks]
        self.progress = FitProgress(
            epoch,
            0,
            done,
            steps.steps,
            epochs=int(kwargs.get("epochs", 1)),
            loader=steps.loader,
            callbacks=tuple(callbacks),
            validates=kwargs.get("validation_data") is not None,
        )
        if not steps.are_passes:
            kwargs["steps_per_epoch"] = steps.steps
        loader = steps.loader
        samples = int(getattr(loader, "batch_size", 0)) * int(getattr(loader, "candidates", 1))
        self._step.fuses = samples >= MANY_SAMPLES and not self._xla
        self._prepare()
        weights = kwargs.pop("class_weight", None)
        self._class_weight = None
        if weights is not None:
            if sorted(weights) != list(range(len(weights))):
                raise OptionError(
                    "`class_weight` should have a weight for each label, from 0 on. "
                    f"Received: {weights!r}"
                )
            self._class_weight = tf.constant([weights[c] for c in range(len(weights))], tf.float32)

    def _prepare(self) -> None:
        """Make what a step needs besides the model."""
        self._build_metrics()  # so that a callback can restore them
        self._dropout_seeds = DropoutSeeds(self.layers, collectives.joined().rank)

    def _build_metrics(self) -> None:
        if not self.compiled_metrics.built:
            form = {self.output_block.full_name: tf.zeros([1, 1])}
            self.compiled_metrics.build(form, form)

    def _give_users(self, batch: SampleBatch) -> None:
        """Hand the users of a batch's samples to the metrics that group by user."""
        self._build_metrics()
        give_users(self.compiled_metrics.metrics, batch, self._user)

    @property
    def _user(self) -> str | None:
        """The column that identifies users."""
        schema = getattr(getattr(self, "body", None), "schema", None)
        return None if schema is None else user_column(schema)

    def scale_rows(self, scaled: ScaledRows) -> None:
        """Let rows of tables move by a part only, from the next step on."""
        self._is_one_program = False
        self._step = self._make_step(scaled)
        self._graphs = Graphs()

    def start_at(self, epoch: int, step: int, steps: int) -> None:
        """Let ``fit``, which is about to begin, begin within an epoch: a resume."""
        if self._training_steps is None:
            raise OptionError(
                "A resume should be of a `fit` on an opened dataset directory or a loader of this "
                "package: no other data can be begun within an epoch."
            )
        self._training_steps.start_at(epoch, step)
        progress = self.progress
        progress.epoch, progress.step, progress.steps = epoch, step, steps

    @contextmanager
    def _steps_of(self, name: str, data: Any) -> Iterator[Any]:
        """Give Keras the numbers of a loader's steps, and other data as they are."""
        steps = data if isinstance(data, LoaderSteps) else None
        if steps is not None and name == "_test_steps" and self._is_compiled:
            self._build_metrics()
            require_users_together(self.compiled_metrics.metrics, steps.loader, self._user)
        if not hasattr(self, "_graphs"):  # it was not compiled
            self._graphs = Graphs()
        before = getattr(self, name)
        if steps is before:  # neither is any
            yield data
            return
        self._set_steps(name, steps)
        try:
            yield data if steps is None else steps.numbers
        finally:
            self._set_steps(name, before)
            if steps is not None:
                steps.close()

    def _set_steps(self, name: str, steps: LoaderSteps | None) -> None:
        setattr(self, name, steps)
        setattr(self, FUNCTIONS[name], None)  # Keras keeps what it was made for last

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Do as Merlin's ``evaluate`` does; ``x`` may be an opened dataset directory too.

        Every rank evaluates all rows of the directory's test files.
        """
        if kwargs.get("_use_cached_eval_dataset") and self._test_steps is not None:
            self._test_steps.start_at(0)  # the validation data of fit, the same on every rank
            return super().evaluate(x, y, batch_size, **kwargs)
        data = self.input_of(batch_size).stored(x, self.training_columns)
        with self._steps_of("_test_steps", data) as x:
            return super().evaluate(x, y, batch_size, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Do as Merlin's ``predict`` does; ``x`` may be an opened dataset directory too.

        Every rank gives one probability for each row of the directory's test files, as stored.
        """
        data = self.input_of(batch_size).stored(x, self.served_columns)
        with self._steps_of("_prediction_steps", data) as x:
            return super().predict(x, batch_size, **kwargs)

    def input_of(self, batch_size: int | None) -> Input:
        """Give what makes this model's batches, of so many samples, of what it is handed."""
        columns, padding = self.training_columns, self._prepare_features
        return Input(columns, padding, batch_size, self.takes_candidates)

    def share_state(self, ranks: Ranks) -> None:
        """Give every rank the first rank's weights and optimizer, before the first step."""
        if ranks.size > 1 and self._is_compiled:
            parts = table_parts(self)
            own = {id(variable) for variable in self.variables if variable.ref() in parts}
            slots = getattr(self.optimizer, "slots", {}).values()
            for of_kind in slots if own else ():
                own |= {
                    id(slot)
                    for variable, slot in zip(self.trainable_variables, of_kind, strict=True)
                    if id(variable) in own
                }
            rate = rate_variable(self.optimizer)
            state = [*self.variables, *self.optimizer.variables(), *self.loss_scale.variables]
            state += [] if rate is None else [rate]
            collectives.broadcast([v for v in state if id(v) not in own], ranks)

    def _add_horovod_callbacks(self, callbacks: Any) -> list[Any]:
        """Let the metrics of an epoch be those of all ranks before any other callback reads them.

        Merlin takes the mean over ranks, which of AUCs is no AUC.
        """
        return [MetricsOverRanks(), *self._validate_callbacks(callbacks)]

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
