"""A Keras model of one's own family, trained by the same ``fit``."""

from __future__ import annotations

from typing import Any

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.tf.core.base import NoOp

from .losses import LossMeans
from .trainable_model import TrainableModel


class OwnModel(TrainableModel):
    """Gives any Keras model with ``compute_step`` the ``compile`` and ``fit`` of this package.

    Args:
        model: The model, built: as :class:`~.family.Family` describes it.
        label: The label's column.
    """

    def __init__(self, model: Any, label: str) -> None:
        """Take the model as it is: its variables are those that are trained."""
        probability = tf.keras.layers.Activation("sigmoid", dtype="float32", name="probability")
        linear = tf.keras.layers.Activation("linear", dtype="float32", name="logit")
        output = mm.BinaryOutput(label, to_call=linear, post=probability, dtype="float32")
        super().__init__(NoOp(), output, autocast=False)
        self.output_block = output
        self.model = model
        self._label = label
        self._loss_means = LossMeans(())
        self.built = True

    @property
    def label(self) -> str:
        """The label's column."""
        return self._label

    def compute_step(self, *arguments: Any, **options: Any) -> Any:
        """Return the model's losses of a batch, and its logits."""
        return self.model.compute_step(*arguments, **options)


def trainable(model: Any, label: str) -> TrainableModel:
    """Return what trains a model: itself, or what gives it this package's ``fit``."""
    return model if isinstance(model, TrainableModel) else OwnModel(model, label)
