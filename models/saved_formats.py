"""Which of Keras's forms of a saved model there are here: SavedModel, a directory, alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

from .blocks.checks import OptionError

OTHER_ENDINGS = (".keras", ".h5", ".hdf5")
"""What makes Keras write one file in a form of its own, which cannot hold these models."""


def check_saved_model(path: str | Path, save_format: str | None = None) -> None:
    """Refuse a path or a format that is not that of a SavedModel.

    Raises:
        OptionError: Saying what to do instead.
    """
    if str(path).endswith(OTHER_ENDINGS) or save_format not in (None, "tf"):
        asked = f"{path}" if save_format is None else f"{path} in the format {save_format!r}"
        raise OptionError(
            "A model is saved as a TensorFlow SavedModel, a directory: its path should not end in "
            f"{', '.join(OTHER_ENDINGS)}. Received: {asked}"
        )


def check_weights_path(path: str | Path) -> None:
    """Refuse a path of weights whose ending asks for a form that cannot hold layers of one name.

    Raises:
        OptionError: Saying what to do instead.
    """
    if str(path).endswith(OTHER_ENDINGS) and not str(path).endswith(".weights.h5"):
        raise OptionError(
            "Weights are saved as a TensorFlow checkpoint: their path should not end in "
            f"{', '.join(OTHER_ENDINGS)}, unless in .weights.h5. Received: {path}"
        )


def check_callbacks(callbacks: Any) -> None:
    """Refuse at once what ``ModelCheckpoint`` could not save after the first epoch.

    Raises:
        OptionError: Naming the path.
    """
    found = getattr(callbacks, "callbacks", callbacks) or ()
    for callback in found if isinstance(found, Iterable) else (found,):
        if isinstance(callback, tf.keras.callbacks.ModelCheckpoint):
            if callback.save_weights_only:
                check_weights_path(callback.filepath)
            else:
                check_saved_model(callback.filepath)
