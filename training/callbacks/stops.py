"""Callbacks that end a training before its last epoch or watch over it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...parallel.ranks.interruption import StopRequest
from ...parallel.ranks.watchdog import Watchdog
from .callback import Callback
from .checkpoint import Checkpoint, leave
from .evaluation import Evaluation


class Heartbeat(Callback):
    """Reports each execution to a watchdog, so that a rank that hangs is noticed."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self._watchdog = watchdog

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Say that this rank goes on."""
        self._watchdog.alive()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Say so in an evaluation too."""
        self._watchdog.alive()


class StopOnNaN(Callback):
    """Ends the training where a loss is no number, with what may help.

    A step whose gradients overflowed in mixed precision changed nothing, and does not count.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look at the losses."""
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
        super().__init__()
        self._steps = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End it where it is time."""
        if self.progress.steps >= self._steps:
            self.model.stop_training = True
            if not self.progress.is_epoch_complete:
                self.progress.ended = ("ended by max_steps", "")


class StopOnSignal(Callback):
    """Ends the training on SIGTERM or Ctrl-C after the step that runs, on all ranks, and saves it.

    It listens while ``fit`` runs, unless there is a request that listens already.
    """

    def __init__(self, request: StopRequest | None = None) -> None:
        super().__init__()
        self._given = request
        self._open = ExitStack()

    def on_train_begin(self, logs: Any = None) -> None:
        """Listen."""
        request = self._given
        if request is None:
            request = self._open.enter_context(StopRequest())
        self.progress.stop_asked = lambda: bool(request)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save and end, where any rank was asked to; those who log hear of the step before."""
        if not self.executed.stopped.numpy().any():
            return
        callbacks = self.progress.callbacks
        for other in callbacks[callbacks.index(self) + 1 :]:
            if not isinstance(other, (Checkpoint, Evaluation, MaxSteps, StopOnSignal)):
                takes_tensors = getattr(other, "_supports_tf_logs", False)
                other.on_train_batch_end(batch, logs if takes_tensors else as_numbers(logs))
        leave(self.model)

    def close(self) -> None:
        """See :class:`Callback`."""
        self._open.close()


def as_numbers(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return logs as Keras gives them to callbacks that take no tensors."""
    return {
        name: value.numpy().item() if tf.is_tensor(value) else value
        for name, value in (logs or {}).items()
    }
