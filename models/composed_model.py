"""A Merlin model composed of a block of this package, as serving takes models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from merlin.models.tf.models.base import BaseModel
from merlin.schema import Schema

from .block_model import ColumnsBlock
from .blocks.checks import OptionError, check_choice
from .family import Family
from .known_families import families
from .saving import Signature, absent_columns, columns_signature, layers_within
from .trainable_model import TrainableModel


def is_composed(model: Any) -> bool:
    """Return whether a model is one of Merlin's, ``mm.Model(block, outputs)``."""
    return isinstance(model, BaseModel) and not isinstance(model, TrainableModel)


class ComposedModel:
    """One output of a composed Merlin model: what an export needs of a model.

    Args:
        model: ``mm.Model(block, outputs)``, which has been called or trained.
        target: The target whose prediction is the score; None for the one of the block's label.
    """

    def __init__(self, model: BaseModel, target: str | None = None) -> None:
        blocks = [layer for layer in layers_within(model) if isinstance(layer, ColumnsBlock)]
        if len(blocks) != 1 or not model.built:
            raise OptionError(
                "A composed model should have one block of this package, such as SIMBlock, and "
                f"weights: call or train it first. Received: {len(blocks)} blocks, "
                f"{'with' if model.built else 'without'} weights."
            )
        self._model, self._block = model, blocks[0]
        self.family = _family_of(self._block)
        outputs = {str(output.target): output.full_name for output in model.model_outputs}
        self.target = self._block.channels.label if target is None else target
        check_choice("target", self.target, list(outputs))
        self._output = outputs[self.target]
        self._training_only = self._columns_of_training()

    @property
    def options(self) -> Any:
        """The block's options."""
        return self._block.options

    @property
    def dtype_policy(self) -> Any:
        """The precision of the block."""
        return self._block._dtype_policy

    @property
    def served_columns(self) -> tuple[str, ...]:
        """What inference reads."""
        served: tuple[str, ...] = self._block.channels.served
        return served

    def _columns_of_training(self) -> Signature:
        """Return the inputs that Merlin's model asks for and that predictions do not depend on."""
        read = self._model.input_schema or Schema([])
        further = read.excluding_by_name(list(self.served_columns))
        negative = set(getattr(self._block.channels, "negative", ()))
        if unknown := [name for name in further.column_names if name not in negative]:
            raise OptionError(
                f"A composed model that is exported should read the columns of its "
                f"{type(self._block).__name__} alone. Received: one that reads "
                f"{', '.join(unknown)} too."
            )
        return columns_signature(further)

    def scores(self, columns: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the output's predictions, [samples, 1], float32."""
        absent = absent_columns(columns, self._training_only)
        found = self._model({**columns, **absent}, training=False)
        if isinstance(found, Mapping):
            found = found[self._output]
        return tf.cast(found, tf.float32)


def _family_of(block: ColumnsBlock[Any]) -> Family:
    """Return the family whose model has a block of this class: it says what a request brings."""
    for family in families().values():
        if type(block) is family.model_class().body_type:
            return family
    raise OptionError(
        "A composed model that is exported should have one of this package's own blocks, by which "
        f"a request is known. Received: {type(block).__name__}."
    )
