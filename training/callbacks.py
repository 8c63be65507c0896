"""What ``merlin-sim train`` adds to Keras's ``fit``: callbacks, for a notebook too.

    model.compile("adam", metrics=[ms.metrics.AUC()])
    model.fit(dataset, batch_size=4096, epochs=3, callbacks=[
        ms.callbacks.Throughput(),
        ms.callbacks.JSONLogger("results"),
        ms.callbacks.StopOnSignal(),
        ms.callbacks.Evaluation(dataset, batch_size=4096),
        ms.callbacks.Checkpoint("checkpoints", resume=True),
    ])

They read ``model.progress``: they are for ``fit`` on an opened dataset directory, or on a loader of
this package. They hear of the end of a step and of an epoch in the order of the list. Callbacks of
one's own stand behind ``Evaluation``, whose values are in their logs, and before ``Checkpoint``,
which saves what they keep.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..checkpoints.checkpoint_files import write_alone
from ..checkpoints.checkpoint_store import CheckpointStore
from ..dataloader.evaluation_rows import EvaluationRows
from ..dataloader.loader import Loader
from ..dataloader.open_loader import open_loader, user_column
from ..foundation.exceptions import MerlinSimError
from ..models.families.family import METRICS
from ..models.loader_steps import Executed, FitProgress
from ..ranks import collectives
from ..ranks.interruption import Interrupted, StopRequest
from ..ranks.watchdog import Watchdog
from ..schemas.dataset import DatasetDirectory
from .checkpoints.joint_writing import save_together
from .checkpoints.run_state import Position, RunFacts, RunState
from .evaluation.best_so_far import VALIDATION, BestSoFar
from .evaluation.metrics import Evaluation as Metrics
from .evaluation.prediction import Predictor, evaluate, published_metrics
from .evaluation.sample_places import SamplePlaces
from .evaluation.throughput import StepTimes, latency_values
from .metrics import AUC
from .reports.run_log import RunLog

Array = npt.NDArray[Any]
RATES = ("samples/s", "throughput")


class Callback(tf.keras.callbacks.Callback):
    """A Keras callback that reads nothing from the device by itself, and may be resumed."""

    def __init__(self) -> None:
        """Let Keras hand logs over as they are."""
        super().__init__()
        self._supports_tf_logs = True

    @property
    def progress(self) -> FitProgress:
        """How far ``fit`` has come."""
        found = getattr(self.model, "progress", None)
        if found is None:
            raise MerlinSimError(
                f"{type(self).__name__} is for `fit` on an opened dataset directory or a loader of "
                "this package."
            )
        progress: FitProgress = found
        return progress

    @property
    def executed(self) -> Executed:
        """What the steps reported that were just done."""
        executed = self.progress.executed
        assert executed is not None
        return executed

    def get_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, as JSON can hold it."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take up what a checkpoint kept."""

    def close(self) -> None:
        """Let go of what is held: ``fit`` calls it at its end, whatever ends it."""


class Heartbeat(Callback):
    """Tells a watchdog of each execution, so that a rank that hangs is noticed."""

    def __init__(self, watchdog: Watchdog) -> None:
        """Take a watchdog that is active."""
        super().__init__()
        self._watchdog = watchdog

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Say that this rank goes on."""
        self._watchdog.alive()


@dataclass(frozen=True)
class Evaluated:
    """What the model is worth after some steps."""

    steps: int
    test: Metrics
    metrics: dict[str, Any]
    """Of all rows that were held out, under their published names."""


class Evaluation(Callback):
    """Scores the rows of test and validation by the published metrics, exact over ranks.

    The logs of an epoch then have ``test_auc``, ``validation_auc`` and so on, and for callbacks of
    Keras the same under ``val_``, of the validation data where there are any, with ``val_loss``.

    Args:
        held_out: An opened dataset directory, or loaders by mapping, ``test`` among them.
        batch_size: Samples a step over all ranks, of a directory.
        times_per_epoch: How often an epoch is evaluated, at its end too.
        patience: Evaluations in a row without a better AUC of the validation data after which
            training ends; None: it does not.
        metrics: The names of the published metrics.
        extra: Further Keras metrics, of labels and probabilities.
        user: The column by which GAUC groups.
        predict: The compiled forward pass; None for one of the model.
        places: Finds the samples of test in the dataset, where their scores are to be kept.
        log: Shows progress.
        alive: Called with every batch.
    """

    def __init__(
        self,
        held_out: DatasetDirectory | Mapping[str, Loader],
        *,
        batch_size: int | None = None,
        times_per_epoch: int = 1,
        patience: int | None = None,
        metrics: Sequence[str] = METRICS,
        extra: Sequence[tf.keras.metrics.Metric] = (),
        user: str | None = None,
        predict: Predictor | None = None,
        places: SamplePlaces | None = None,
        log: RunLog | None = None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        """Take what is scored."""
        super().__init__()
        if isinstance(held_out, DatasetDirectory) and not batch_size:
            raise MerlinSimError("`batch_size` should be set when the data is a directory.")
        self._held_out = held_out
        self._batch_size = batch_size
        self._times = times_per_epoch
        self._patience = patience
        self._metrics = metrics
        self._extra = extra
        self._user = user
        self._predict = predict
        self._places = places
        self._log = log or RunLog(None)
        self._alive = alive
        self._seen = 0
        self.best = BestSoFar()
        self.last: Evaluated | None = None

    @functools.cached_property
    def held_out(self) -> Mapping[str, Loader]:
        """The loaders, by mapping."""
        if not isinstance(self._held_out, DatasetDirectory):
            return self._held_out
        dataset, model, ranks = self._held_out, self.model, collectives.joined()
        assert self._batch_size is not None
        self._user = self._user or user_column(dataset.schema)
        columns = [*model.served_columns, model.label]
        columns += [self._user] if self._user and self._user not in columns else []
        candidates = model._input(self._batch_size, model.takes_candidates)._candidates(dataset)
        found = {}
        for mapping in ("test", VALIDATION):
            if mapping in dataset.spec.source_spec:
                rows = EvaluationRows.of(dataset, mapping, candidates, self._batch_size, ranks)
                size = rows.global_batch_size
                found[mapping] = open_loader(
                    dataset, mapping, columns, size, ranks, candidates=rows.candidates
                )
        return found

    def get_state(self) -> dict[str, Any]:
        """See :class:`Callback`."""
        return {"best": self.best.to_facts()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self.best = BestSoFar.from_facts(state["best"])

    @property
    def is_over(self) -> bool:
        """Whether patience has ended."""
        return self._patience is not None and self.best.no_better >= self._patience

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note from where on steps are counted."""
        self._seen = self.progress.step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Score within an epoch, where it is time."""
        progress, before = self.progress, self._seen
        steps, times = progress.steps_of_epoch, self._times
        self._seen = progress.step
        points = {round(steps * time / times) for time in range(1, times)} - {0}
        if progress.is_epoch_complete or self.model.stop_training:
            return
        if any(before < point <= progress.step for point in points):
            tell(self, "on_evaluation_end", self.evaluate())
            self._end_if_over()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Score at the end of an epoch."""
        self.on_epoch_evaluation({} if logs is None else logs)

    def on_epoch_evaluation(self, logs: dict[str, Any]) -> None:
        """Put what is measured at the end of an epoch into its logs."""
        metrics = self.evaluate()
        self._end_if_over()
        logs |= {name: value for name, value in metrics.items() if value is not None}
        mapping = VALIDATION if VALIDATION in self.held_out else "test"
        for name, value in metrics.items():
            if value is not None and name.startswith(f"{mapping}_"):
                logs[f"val_{name.removeprefix(f'{mapping}_')}"] = value
        if "val_log_loss" in logs:
            logs["val_loss"] = logs["val_log_loss"]

    def evaluate(self) -> dict[str, Any]:
        """Score what is held out, if that was not done since the last step; all ranks call this."""
        steps = self.progress.steps
        if self.last is None or self.last.steps != steps:
            found = {mapping: self._evaluate_on(mapping) for mapping in self.held_out}
            metrics: dict[str, Any] = {}
            for mapping, (evaluation, extra) in found.items():
                metrics |= published_metrics(evaluation, self._metrics, mapping)
                metrics |= {f"{mapping}_{name}": value for name, value in extra.items()}
            self.best.take(steps, metrics)
            self.last = Evaluated(steps, found["test"][0], metrics)
        return self.last.metrics

    def _evaluate_on(self, mapping: str) -> tuple[Metrics, dict[str, float]]:
        if self._predict is None:
            self._predict = Predictor(self.model)
        feed = self.held_out[mapping]
        feed.start_at(0)
        for metric in self._extra:
            metric.reset_state()
        found = evaluate(
            self._predict,
            feed,
            collectives.joined(),
            self._log,
            self._user,
            stopped=self.progress.stop_asked,
            alive=self._alive,
            title=mapping,
            places=self._places if mapping == "test" else None,
            extra=self._extra,
        )
        if found is None:
            leave(self.model)
        assert found is not None
        return found

    def _end_if_over(self) -> None:
        if self.is_over and not self.progress.ended:
            self.model.stop_training = True
            self.progress.ended = (
                "ended early",
                f"{self.best.no_better} evaluations in a row were no better than that after step "
                f"{self.best.steps}: early_stopping ends the training.",
            )


class Throughput(Callback):
    """Times steps, the wait for what they are made of included, and gives the published keys.

    The logs of a step then have ``samples/s``; those of an epoch ``samples/s``, ``throughput``,
    ``latency_mean``, ``latency_p90`` and so on, and ``seconds``. The first step of a process, in
    which TensorFlow makes the graph, counts in ``seconds`` alone.
    """

    def __init__(self) -> None:
        """Begin with nothing timed."""
        super().__init__()
        self.times = StepTimes()
        self.seconds = 0.0
        """Time spent training by this process, evaluation and checkpoints left out."""
        self.samples = 0
        """Samples trained on by this process and the other ranks."""
        self._counted = [0.0, 0.0]
        self._begun = self._of_epoch = 0.0

    @property
    def rate(self) -> float | None:
        """Samples a second over all epochs of this process; None where no step counts."""
        samples, seconds = self._counted
        return samples / seconds if seconds else None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the epoch's times."""
        self.times.begin_epoch()
        self._of_epoch = self.seconds

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start the clock."""
        self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stop it, when the steps are done."""
        samples = np.rint(self.executed.samples.numpy()).astype(int).tolist()
        seconds = time.perf_counter() - self._begun
        for count in samples:
            self.times.add(count, seconds / len(samples))
        self.seconds += seconds
        self.samples += sum(samples)
        if logs is not None:
            logs["samples/s"] = sum(samples) / max(1e-9, seconds)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Give the epoch's values."""
        self._counted[0] += self.times.samples
        self._counted[1] += self.times.seconds
        if logs is not None:
            logs["seconds"] = self.seconds - self._of_epoch
            logs |= {name: v for name, v in self.times.values().items() if v is not None}


class StopOnNaN(Callback):
    """Ends the training where a loss is no number, with what may help.

    A step whose gradients overflowed in mixed precision changed nothing, and does not count.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look at the losses.

        Raises:
            MerlinSimError: With the loss, and the learning rate.
        """
        losses, finite = self.executed.losses[:, 0].numpy(), self.executed.finite.numpy()
        wrong = np.flatnonzero(finite & ~np.isfinite(losses))
        if len(wrong):
            step = self.progress.steps - len(losses) + int(wrong[0]) + 1
            rate = float(tf.convert_to_tensor(self.model.optimizer.learning_rate))
            raise MerlinSimError(
                f"the loss is {losses[wrong[0]]} after step {step}: a smaller `lr` than "
                f"{rate:g} may help."
            )


class MaxSteps(Callback):
    """Ends the training after so many steps in all, within an epoch too."""

    def __init__(self, steps: int) -> None:
        """Take the number."""
        super().__init__()
        self._steps = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End it where it is time."""
        if self.progress.steps >= self._steps:
            self.model.stop_training = True
            if not self.progress.is_epoch_complete:
                self.progress.ended = ("ended by max_steps", "")


@dataclass
class _EpochSums:
    """What is kept of the steps of an epoch."""

    losses: dict[str, float] = field(default_factory=dict)
    """Sums over the steps, by name."""
    finished: dict[str, Any] | None = None
    """What was logged of the last complete epoch, without the times of the process."""


class JSONLogger(Callback):
    """Writes the log of a run: an entry for each step, evaluation and epoch.

    Args:
        log: Where it goes: an opened log, or a directory of results.
        losses: The names of the losses; None for those of the model's family.
        loss_of_test: Computes the loss over the test data, for a log that has it.
    """

    def __init__(
        self,
        log: RunLog | Path | str,
        *,
        losses: Sequence[str] | None = None,
        loss_of_test: Callable[[], float] | None = None,
    ) -> None:
        """Open the log."""
        super().__init__()
        self.log = log if isinstance(log, RunLog) else RunLog(_of_first_rank(Path(log)))
        self._names = losses
        self._loss_of_test = loss_of_test
        self._epoch = _EpochSums()
        self._open = ExitStack()
        self._line: Any = None

    @property
    def finished_epoch(self) -> dict[str, Any]:
        """What was logged of the last complete epoch."""
        return self._epoch.finished or {}

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the losses; the first is what is minimised."""
        from ..models.registry import family_of

        return tuple(family_of(self.model).losses if self._names is None else self._names)

    def get_state(self) -> dict[str, Any]:
        """See :class:`Callback`."""
        return asdict(self._epoch)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See :class:`Callback`."""
        self._epoch = _EpochSums(**state)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begin the line of progress."""
        title, steps = self._title(epoch), self.progress.steps_of_epoch
        done = 0 if self.progress.is_epoch_complete else self.progress.step
        self._line = self._open.enter_context(self.log.progress(title, steps, done))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the entries of the steps that were just done."""
        progress, executed = self.progress, self.executed
        losses, scales = executed.losses.numpy().tolist(), executed.loss_scale.numpy().tolist()
        finite = executed.finite.numpy().tolist()
        rate = float((logs or {}).get("samples/s", math.nan))
        sums = self._epoch.losses
        shown: dict[str, float] = {}
        for place, values in enumerate(losses):
            shown = dict(zip(self.names, values, strict=True))
            for name, loss in shown.items():
                sums[name] = sums.get(name, 0.0) + loss
            entry: dict[str, Any] = {**shown, "samples/s": rate}
            if self.model.loss_scale.active:
                entry |= {"loss_scale": scales[place], "skipped": not finite[place]}
            behind = len(losses) - 1 - place
            at = (progress.epoch, progress.step - 1 - behind)
            step = progress.steps - behind
            self.log.write("step", at, epoch=progress.epoch + 1, step=step, **entry)
        self._line.update(progress.step, f"{describe_losses(shown)}  {rate:,.0f} samples/s")
        if progress.is_epoch_complete or self.model.stop_training:
            self._open.close()

    def on_evaluation_end(self, metrics: Mapping[str, Any]) -> None:
        """Write what was measured within an epoch."""
        self.log.say(f"step {self.progress.steps}  {describe(metrics)}")
        self._write_evaluation(metrics)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the epoch's entry; where it was ended before its end, that of an evaluation."""
        self._open.close()
        logs = {} if logs is None else logs
        tell(self, "on_epoch_evaluation", logs)
        progress, title = self.progress, self._title(epoch)
        measured = {n: v for n, v in logs.items() if n.startswith(("test_", f"{VALIDATION}_"))}
        if not progress.is_epoch_complete:
            how, why = progress.ended or ("ended by a callback", "")
            if why:
                self.log.say(why)
            else:
                self._write_evaluation(measured)
            self.log.say(f"{title}, {how}  {describe(measured)}")
            return
        losses = {n: total / progress.steps_of_epoch for n, total in self._epoch.losses.items()}
        metrics = {**losses, **self._trained(logs), **measured}
        if self._loss_of_test is not None:
            metrics |= {"train_loss": losses[self.names[0]], "test_loss": self._loss_of_test()}
        self._epoch = _EpochSums(finished=metrics)
        times = {n: v for n, v in logs.items() if n in RATES or n.startswith("latency")}
        values = {**metrics, **dict.fromkeys(RATES), **times}
        seconds = logs.get("seconds")
        self.log.write(
            "epoch", (epoch,), epoch=epoch + 1, step=progress.steps, seconds=seconds, **values
        )
        self.log.say(f"{title}  {describe(values)}")
        if progress.ended:
            self.log.say(progress.ended[1])

    def close(self) -> None:
        """See :class:`Callback`."""
        self._open.close()

    def _trained(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the compiled metrics of training, over all ranks."""
        found: dict[str, Any] = {}
        for metric in self.model.metrics:
            if isinstance(metric, AUC):
                found[f"train_{metric.name}"] = metric.exact_result(collectives.joined())
            elif metric.name in logs and not metric.name.endswith("loss"):
                found[f"train_{metric.name}"] = float(logs[metric.name])
        return found

    def _write_evaluation(self, values: Mapping[str, Any]) -> None:
        progress = self.progress
        at = (progress.epoch, progress.step - 1)
        self.log.write("evaluation", at, epoch=progress.epoch + 1, step=progress.steps, **values)

    def _title(self, epoch: int) -> str:
        return f"epoch {epoch + 1}/{self.progress.epochs}"


class Checkpoint(Callback):
    """Saves a run so that it goes on from there to the bit, within an epoch too.

    Saved are weights, the optimizer, the loss scale, the metrics of the unfinished epoch, and what
    callbacks keep: those with ``get_state`` and ``set_state``, and Keras's ``EarlyStopping`` and
    ``ReduceLROnPlateau``. Dropout repeats itself where its layers were built with Keras's random
    generators (``tf.keras.backend.experimental.enable_tf_random_generator()``).

    Args:
        directory: Where checkpoints go; None saves none.
        every: Steps between checkpoints within epochs; None: at the ends of epochs.
        keep: The newest that are kept; the best stays too.
        select_by: ``validation`` or ``test``, by whose AUC the best is found; None chooses none.
        resume: Whether to go on from the newest checkpoint in ``directory``, if there is one.
        state: A state that has been restored, in place of ``resume``.
        patience: Held while this rank writes: see :meth:`~.watchdog.Watchdog.patience`.
    """

    def __init__(
        self,
        directory: Path | str | None,
        *,
        every: int | None = None,
        keep: int = 3,
        select_by: str | None = None,
        resume: bool = False,
        state: RunState | None = None,
        patience: Callable[[], AbstractContextManager[Callable[[], None]]] | None = None,
    ) -> None:
        """Take where to save, and when."""
        super().__init__()
        self.directory = None if directory is None else Path(directory)
        self._every = every
        self._keep = keep
        self._select_by = select_by
        self._resume = resume
        self._state = state
        self._patience = patience or _no_patience
        self._metrics: dict[str, Array] = {}

    @property
    def state(self) -> RunState:
        """What is saved."""
        assert self._state is not None
        return self._state

    def on_train_begin(self, logs: Any = None) -> None:
        """Go on from a checkpoint, where there is one."""
        if self._state is None:
            self._state = self._own_state()
        position = self.state.position
        if position != Position():
            self.model.start_at(position.epoch, position.step, position.steps)
        set_states(self.progress.callbacks, position.callbacks)
        self._metrics = self.state.metrics
        # Keras asks it where to begin, as it asks that of BackupAndRestore.
        self.model._training_state = self

    def _own_state(self) -> RunState:
        model, ranks = self.model, collectives.joined()
        facts = RunFacts.of(model, self.progress.loader, self._select_by)
        state = RunState(model, model.optimizer, model.loss_scale, facts)
        store = CheckpointStore(self.directory) if self.directory else None
        names = store.names() if store is not None and self._resume else []
        if collectives.broadcast_object(bool(names), ranks):

            def restore() -> None:
                assert store is not None
                checkpoint = store.load(print)
                self.progress.loader.seed = checkpoint.facts["order"].get("seed")
                state.facts = RunFacts.of(model, self.progress.loader, self._select_by)
                state.restore(checkpoint)

            collectives.on_first_rank(restore, ranks)
            seed = collectives.broadcast_object(self.progress.loader.seed, ranks)
            self.progress.loader.seed = seed
            state.position = collectives.broadcast_object(state.position, ranks)
            model.share_state(ranks)
        return state

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        """Tell Keras with which step of which epoch to begin."""
        epoch, step = self.progress.epoch, self.progress.step
        if step < self.progress.steps_of_epoch:
            return epoch, step
        # It was stopped when all steps of an epoch were done, and the epoch had not ended.
        self._restore_metrics()
        logs = {name: float(value) for name, value in self.model.get_metrics_result().items()}
        for callback in self.progress.callbacks:
            callback.on_epoch_end(epoch, logs)
        self.progress.epoch, self.progress.step = epoch + 1, 0
        return epoch + 1, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Take up the metrics of an epoch that goes on."""
        self._restore_metrics()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save within an epoch, where it is time."""
        steps, done = self.progress.steps, len(self.executed.samples)
        if self._every and steps // self._every > (steps - done) // self._every:
            self.save()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save; where something ended the epoch within, a run that goes further does from there."""
        auc = (logs or {}).get(f"{self._select_by}_auc")
        self.save(auc, ends_epoch=self.progress.is_epoch_complete)

    def on_train_end(self, logs: Any = None) -> None:
        """Let Keras begin by itself again."""
        self.close()

    def close(self) -> None:
        """See :class:`Callback`."""
        self.model._training_state = None

    def save(self, auc: float | None = None, ends_epoch: bool = False) -> None:
        """Write a checkpoint; all ranks must come here, the first writes."""
        if self.directory is None:
            return
        progress, state, ranks = self.progress, self.state, collectives.joined()
        position = (progress.epoch + 1, 0) if ends_epoch else (progress.epoch, progress.step)
        kept = {n: _get_state(c) for n, c in _stateful(progress.callbacks).items()}
        state.position = Position(*position, progress.steps, kept)
        metrics = {} if ends_epoch else metric_states(self.model.metrics)
        store = CheckpointStore(self.directory, self._keep)
        with self._patience() as goes_on:
            if state.parts:
                save_together(store, state, metrics, auc, ranks, goes_on)
            elif ranks.is_first:
                facts, arrays = state.to_checkpoint(metrics)
                write = functools.partial(write_alone, report=goes_on)
                store.save(progress.steps, facts, arrays, auc, write)

    def _restore_metrics(self) -> None:
        """Give the first rank's metrics what all ranks had counted."""
        if self._metrics and collectives.joined().is_first:
            for metric in self.model.metrics:
                for place, variable in enumerate(metric.variables):
                    name = f"{metric.name}/{place}"
                    if name in self._metrics:
                        variable.assign(self._metrics[name])
        self._metrics = {}


class StopOnSignal(Callback):
    """Ends the training on SIGTERM or Ctrl-C after the step that runs, on all ranks, and saves it.

    Args:
        request: Listens to the signals; None for one that does so while ``fit`` runs.
    """

    def __init__(self, request: StopRequest | None = None) -> None:
        """Take who listens."""
        super().__init__()
        self._given = request
        self._open = ExitStack()

    def on_train_begin(self, logs: Any = None) -> None:
        """Listen."""
        request = self._given or self._open.enter_context(StopRequest())
        self.progress.stop_asked = lambda: bool(request)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save and end, where any rank was asked to.

        Raises:
            Interrupted: On all ranks.
        """
        if self.executed.stopped.numpy().any():
            leave(self.model)

    def close(self) -> None:
        """See :class:`Callback`."""
        self._open.close()


class Benchmark(Callback):
    """Measures the throughput of steps, those before not counted, as published.

    Args:
        log: Takes an entry for each step.
        steps: All steps, the warm-up among them.
        warmup_steps: Those before, which are not measured.
        steps_of_pass: Steps of a pass over the data.
        losses: The names of the losses.
    """

    def __init__(
        self, log: RunLog, steps: int, warmup_steps: int, steps_of_pass: int, losses: Sequence[str]
    ) -> None:
        """Take what is measured."""
        super().__init__()
        self._log, self._steps, self._warmup = log, steps, warmup_steps
        self._steps_of_pass, self._names = steps_of_pass, losses
        self._latencies: list[float] = []
        self._samples = 0
        self._begin = self._begun = 0.0
        self._open = ExitStack()
        self.losses: dict[str, float] = {}
        """Of the last step."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin."""
        self._line = self._open.enter_context(self._log.progress("training", self._steps))
        self._begin = self._begun = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the steps that were just done."""
        samples = self.executed.samples.numpy().tolist()
        losses = self.executed.losses.numpy().tolist()
        now = time.perf_counter()
        seconds, self._begun = (now - self._begun) / len(samples), now
        for place, count in enumerate(samples):
            done = self.progress.step - len(samples) + place + 1
            self.losses = dict(zip(self._names, losses[place], strict=True))
            epoch, step = divmod(done - 1, self._steps_of_pass)
            rate = {"samples/s": count / max(1e-9, seconds)}
            self._log.write(
                "step", (epoch, step), epoch=epoch + 1, step=done, **self.losses, **rate
            )
            if done > self._warmup:
                self._latencies.append(seconds)
                self._samples += round(count)
        shown = f"{samples[-1] / seconds:,.0f} samples/s" if self._latencies else ""
        self._line.update(self.progress.step, shown)

    def results(self) -> dict[str, Any]:
        """Return the published keys."""
        throughput = self._samples / max(1e-9, sum(self._latencies))
        seconds = self._begun - self._begin
        return {"throughput": throughput, "time": seconds, **latency_values(self._latencies)}

    def close(self) -> None:
        """See :class:`Callback`."""
        self._open.close()


def leave(model: Any) -> None:
    """Save a model that ``fit`` trains and end, on all ranks alike.

    Raises:
        Interrupted: With where it was saved.
    """
    progress: FitProgress = model.progress
    savers = [one for one in progress.callbacks if isinstance(one, Checkpoint)]
    if progress.epochs is not None and progress.epoch >= progress.epochs:
        raise Interrupted("stopped on request in the evaluation after the last epoch.")
    for saver in savers:
        saver.save()
    where = next((saver.directory for saver in savers if saver.directory), None)
    kept = (
        f"saved in {where}; --load_checkpoint_path {where} goes on"
        if where
        else "nothing was saved, there is no --save_checkpoint_path"
    )
    raise Interrupted(
        f"stopped on request in epoch {progress.epoch + 1} after {progress.steps} steps: {kept}."
    )


def tell(callback: Callback, event: str, *arguments: Any) -> None:
    """Call a method of all callbacks of ``fit`` that have it."""
    for other in callback.progress.callbacks:
        method = getattr(other, event, None)
        if method is not None:
            method(*arguments)


def metric_states(metrics: Iterable[tf.keras.metrics.Metric]) -> dict[str, Array]:
    """Return the states of metrics, those of all ranks added up; all ranks call this."""
    own = {
        f"{metric.name}/{place}": variable.numpy()
        for metric in metrics
        for place, variable in enumerate(metric.variables)
    }
    of_ranks = collectives.gather_objects(own, collectives.joined())
    return {
        name: np.sum([state[name] for state in of_ranks], axis=0, dtype=value.dtype)
        for name, value in own.items()
    }


KERAS_STATES = ("wait", "best", "best_epoch", "stopped_epoch", "cooldown_counter")
"""What Keras's callbacks keep in attributes."""
OF_KERAS = (tf.keras.callbacks.EarlyStopping, tf.keras.callbacks.ReduceLROnPlateau)


def _stateful(callbacks: Sequence[Any]) -> dict[str, Any]:
    """Name the callbacks that have a state; several of a class are numbered."""
    named: dict[str, Any] = {}
    for callback in callbacks:
        if hasattr(callback, "get_state") or isinstance(callback, OF_KERAS):
            name = kind = type(callback).__name__
            number = 1
            while name in named:
                number += 1
                name = f"{kind}_{number}"
            named[name] = callback
    return named


def set_states(callbacks: Sequence[Any], states: Mapping[str, Any]) -> None:
    """Give callbacks what a checkpoint kept of them, by their names."""
    for name, callback in _stateful(callbacks).items():
        if name in states:
            _set_state(callback, states[name])


def _get_state(callback: Any) -> dict[str, Any]:
    if hasattr(callback, "get_state"):
        state: dict[str, Any] = callback.get_state()
        return state
    names = [name for name in KERAS_STATES if hasattr(callback, name)]
    found = {name: getattr(callback, name) for name in names}
    return {
        name: value if isinstance(value, int) else float(value) for name, value in found.items()
    }


def _set_state(callback: Any, state: Mapping[str, Any]) -> None:
    if hasattr(callback, "set_state"):
        callback.set_state(state)
    else:
        for name, value in state.items():
            setattr(callback, name, value)


@contextlib.contextmanager
def _no_patience() -> Any:
    yield lambda: None


def _of_first_rank(path: Path) -> Path | None:
    return path if collectives.joined().is_first else None


def describe_losses(losses: Mapping[str, float]) -> str:
    """Put a step's losses in a few words: what is minimised, and its parts where there are several.

    >>> describe_losses({"total": 0.75, "click": 0.5, "auxiliary": 0.25})
    'loss 0.7500 (0.5000 + 0.2500)'
    >>> describe_losses({"total": 0.5, "click": 0.5, "auxiliary": 0.0})
    'loss 0.5000'
    """
    minimised, *others = losses.values()
    parts = [f"{loss:.4f}" for loss in others if loss]
    return f"loss {minimised:.4f}" + (f" ({' + '.join(parts)})" if len(parts) > 1 else "")


def describe(values: Mapping[str, Any]) -> str:
    """Put an epoch's metrics in one line.

    >>> describe({"total_loss": 0.5, "test_auc": None, "samples/s": 12345.6})
    'total_loss 0.5000  samples/s 12,346'
    """
    parts = []
    for name, value in values.items():
        if value is not None and not name.startswith(("latency", "throughput")):
            shown = f"{value:,.0f}" if name == "samples/s" else f"{value:.4f}"
            parts.append(f"{name} {shown}")
    return "  ".join(parts)
