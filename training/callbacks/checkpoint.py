"""Checkpoints of ``fit`` that go on to the bit, and what callbacks keep in them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...models.compiled_metrics import states_over_ranks
from ...models.loader_steps import FitProgress
from ...models.saving import average_untrained
from ...parallel.checkpoints.checkpoint_files import write_alone
from ...parallel.checkpoints.checkpoint_store import CheckpointStore
from ...parallel.ranks import collectives
from ...parallel.ranks.interruption import Interrupted
from ...parallel.steps.optimizers import rate_variable
from ..checkpoints.run_state import (
    Position,
    RunMetadata,
    RunState,
    check_run_metadata,
    save_together,
)
from .callback import Callback

Array = npt.NDArray[Any]


class Checkpoint(Callback):
    """Saves a run so that it goes on from there to the bit, within an epoch too.

    Saved are weights, the optimizer, the loss scale, the metrics of the unfinished epoch, and what
    callbacks keep: those with ``get_state`` and ``set_state``, and Keras's ``EarlyStopping`` and
    ``ReduceLROnPlateau``; a resume refuses ``restore_best_weights``. Dropout repeats itself where
    its layers were built with Keras's random generators
    (``tf.keras.backend.experimental.enable_tf_random_generator()``). Callbacks that change the
    learning rate at an epoch's begin stand before this one.

    Args:
        directory: Where checkpoints go; None saves none.
        every: Steps between checkpoints within epochs; None: at the ends of epochs.
            With ``select_by``, what is scored within epochs is saved too.
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
        super().__init__()
        self.directory = None if directory is None else Path(directory)
        self._every = every
        self._keep = keep
        self._select_by = select_by
        self._resume = resume
        self._given = state
        self._state: RunState | None = None
        self._patience = patience or (lambda: contextlib.nullcontext(lambda: None))
        self._metrics: dict[str, Array] = {}
        self._auc: float | None = None
        self._rate: float | None = None

    @property
    def state(self) -> RunState:
        """What is saved."""
        assert self._state is not None
        return self._state

    def on_train_begin(self, logs: Any = None) -> None:
        """Go on from a checkpoint, where there is one."""
        self._refuse_to_choose_by_nothing()
        if self._resume or (self._given is not None and self._given.position.callbacks):
            self._refuse_to_lose_best_weights()
        self._state = self._given or self._own_state()
        position = self.state.position
        if position != Position():
            self.model.start_at(position.epoch, position.step, position.steps)
        set_states(self.progress.callbacks, position.callbacks)
        self._metrics, self._auc = self.state.metrics, None
        self._rate = self.state.restored_rate if position.step else None
        # Keras asks it where to begin, as it asks that of BackupAndRestore.
        self.model._training_state = self

    def _refuse_to_lose_best_weights(self) -> None:
        for callback in self.progress.callbacks:
            if getattr(callback, "restore_best_weights", False):
                raise MerlinSimError(
                    f"{type(callback).__name__}: expected restore_best_weights=False in a run "
                    "that resumes, as checkpoints do not keep these weights; "
                    "Checkpoint(select_by=...) keeps the best checkpoint. Received: True."
                )

    def _refuse_to_choose_by_nothing(self) -> None:
        callbacks = list(self.progress.callbacks)
        before = callbacks[: callbacks.index(self)]
        scored = [name for callback in before for name in getattr(callback, "mappings", ())]
        if self._select_by is not None and self._select_by not in scored:
            raise MerlinSimError(
                f"Checkpoint(select_by={self._select_by!r}): expected an Evaluation before it, of "
                f"a dataset that has such data. Found: {', '.join(scored) or 'none'}."
            )

    def _own_state(self) -> RunState:
        model, ranks = self.model, collectives.joined()
        loader = self.progress.loader
        if getattr(loader, "directory", None) is None:
            raise MerlinSimError(
                "Checkpoint: expected an opened dataset directory as the data of `fit`, by whose "
                f"facts a resume goes. Received: {type(loader).__name__} without a directory."
            )
        metadata = RunMetadata.of(model, loader, self._select_by)
        state = RunState(model, model.optimizer, model.loss_scale, metadata)
        store = CheckpointStore(self.directory) if self.directory else None
        names = store.names() if store is not None and self._resume else []
        if collectives.broadcast_object(bool(names), ranks):

            def restore() -> None:
                assert store is not None
                checkpoint = store.load(print, check_run_metadata)
                loader.seed = checkpoint.metadata["order"].get("seed")
                state.metadata = RunMetadata.of(model, loader, self._select_by)
                state.restore(checkpoint)

            collectives.on_first_rank(restore, ranks)
            seed = collectives.broadcast_object(loader.seed, ranks)
            loader.seed = seed
            state.share_position(ranks)
            model.share_state(ranks)
        return state

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: int, initial_epoch: int, mode: Any
    ) -> tuple[int, int]:
        """Return the epoch and the step with which Keras is to begin."""
        epoch, step = self.progress.epoch, self.progress.step
        if step < self.progress.steps_of_epoch:
            return epoch, step
        # It was stopped when all steps of an epoch were done, and the epoch had not ended.
        self._restore_metrics()
        self._rate = None
        logs = {name: float(value) for name, value in self.model.get_metrics_result().items()}
        for callback in self.progress.callbacks:
            callback.on_epoch_end(epoch, logs)
        following = self.progress.epochs if self.model.stop_training else epoch + 1
        self.progress.epoch, self.progress.step = following or epoch + 1, 0
        return self.progress.epoch, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Take up the metrics, and the learning rate, of an epoch that goes on."""
        self._restore_metrics()
        variable, rate = rate_variable(self.model.optimizer), self._rate
        if variable is not None and rate is not None:
            variable.assign(rate)
        self._rate = None

    def on_evaluation_end(self, metrics: Mapping[str, Any]) -> None:
        """Note that these weights are to be saved, as they may be the best."""
        self._auc = metrics.get(f"{self._select_by}_auc")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Save what a resume scored before its first step."""
        self._save_within_epoch(is_time=False)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save within an epoch, where it is time or the weights were just scored."""
        steps, done = self.progress.steps, len(self.executed.samples)
        every = self._every
        self._save_within_epoch(every is not None and steps // every > (steps - done) // every)

    def _save_within_epoch(self, is_time: bool) -> None:
        auc, self._auc = self._auc, None
        if is_time or auc is not None:
            self.save(auc)

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
        average_untrained(state.model, ranks)
        position = (progress.epoch + 1, 0) if ends_epoch else (progress.epoch, progress.step)
        kept = {n: _get_state(c) for n, c in _stateful(progress.callbacks).items()}
        state.position = Position(*position, progress.steps, kept)
        metrics = {} if ends_epoch else metric_states(self.model.metrics)
        store = CheckpointStore(self.directory, self._keep)
        with self._patience() as goes_on:
            if state.parts:
                save_together(store, state, metrics, auc, ranks, goes_on)
            elif ranks.is_first:
                metadata, arrays = state.to_checkpoint(metrics)
                write = functools.partial(write_alone, report=goes_on)
                store.save(progress.steps, metadata, arrays, auc, write)

    def _restore_metrics(self) -> None:
        """Give the first rank's metrics what all ranks had counted."""
        if self._metrics and collectives.joined().is_first:
            for metric in self.model.metrics:
                for index, variable in enumerate(metric.variables):
                    name = f"{metric.name}/{index}"
                    if name in self._metrics:
                        variable.assign(self._metrics[name])
        self._metrics = {}


def leave(model: Any) -> None:
    """Save a model that ``fit`` trains and end, on all ranks alike, saying where it was saved."""
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


def metric_states(metrics: Sequence[tf.keras.metrics.Metric]) -> dict[str, Array]:
    """Name the states of metrics, those of all ranks added up; all ranks call this."""
    names = [f"{metric.name}/{n}" for metric in metrics for n in range(len(metric.variables))]
    return dict(zip(names, states_over_ranks(metrics), strict=True))


KERAS_STATES = ("wait", "best", "best_epoch", "stopped_epoch", "cooldown_counter")
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
