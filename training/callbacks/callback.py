"""The base of every callback of this package, and how one finds another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...models.loader_steps import Executed, FitProgress
from ...models.trainable_model import TrainableModel


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
            of_ours = isinstance(self.model, TrainableModel)
            what = "other data" if of_ours else f"a model of Keras, {type(self.model).__name__}"
            raise MerlinSimError(
                f"{type(self).__name__} is for `fit` on an opened dataset directory or a loader of "
                f"this package, of a model of this package such as SIMModel. Received: {what}."
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
        """Release what is held: ``fit`` calls it at its end, whatever ends it."""


def notify(callback: Callback, event: str, *arguments: Any) -> None:
    """Call a method of all callbacks of ``fit`` that have it."""
    for other in callback.progress.callbacks:
        method = getattr(other, event, None)
        if method is not None:
            method(*arguments)
