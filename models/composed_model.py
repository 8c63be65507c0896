"""A block of this package in a Merlin model of one's own: its objective, and its export.

``mm.Model`` gives a block the labels of a batch and adds the block's losses to those of the
outputs. It gives no block the sample weights, and no block can say how much an output's loss
counts beside its own: neither ``Model.call`` nor its context has either. So Merlin's
``call_train_test``, which has the weights and hands them to the losses, is wrapped, once for the
process: weights pass to the blocks through :func:`join_step`, and an output's share of the
objective is multiplied into its weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import tensorflow as tf
from merlin.models.tf.models import base
from merlin.models.tf.models.base import BaseModel
from merlin.schema import Schema

from ..schemas.dataset import DatasetDirectory
from .block_model import ColumnsBlock
from .blocks.checks import OptionError, check_choice
from .family import Family
from .known_families import families
from .saving import Signature, absent_columns, columns_signature, layers_within
from .trainable_model import TrainableModel


class ComposedStep(NamedTuple):
    """One batch of a Merlin model's ``fit`` or ``evaluate``."""

    sample_weight: Any
    """As the batch has it; None counts every sample once."""
    shares: dict[str, float]
    """By label, the weight of its output's loss beside those that a block adds."""


_current: ContextVar[ComposedStep | None] = ContextVar("composed_step", default=None)


def join_step(label: str, share: float) -> tf.Tensor | None:
    """Return the weights of the samples in this step, for the losses that a block adds.

    Args:
        label: The column that the block's losses are about.
        share: The weight of the loss of the output with this label, unless ``compile`` was given
            ``loss_weights``.
    """
    step = _current.get()
    if step is None:  # the block is called in a loop of one's own, which adds up losses itself
        return None
    step.shares[label] = share
    return step.sample_weight


def weigh_composed_models() -> None:
    """Have Merlin's models give blocks the sample weights, and give outputs their shares.

    They refuse an opened dataset directory by a message of its own, too.
    """
    merlins = BaseModel.call_train_test
    if getattr(merlins, "weighs_blocks", False):
        return

    @functools.wraps(merlins)
    def call_train_test(
        self: Any, x: Any, y: Any = None, sample_weight: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        step = ComposedStep(sample_weight, {})
        token = _current.set(step)
        try:
            outputs = merlins(self, x, y, sample_weight, *args, **kwargs)
        finally:
            _current.reset(token)
        return _weighed(self, outputs, step) if step.shares else outputs

    call_train_test.weighs_blocks = True  # type: ignore[attr-defined]
    BaseModel.call_train_test = call_train_test
    base._maybe_convert_merlin_dataset = _refusing_directories(base._maybe_convert_merlin_dataset)


def _refusing_directories(merlins: Callable[..., Any]) -> Callable[..., Any]:
    """Have Merlin's models say what they take in place of an opened dataset directory."""

    @functools.wraps(merlins)
    def converted(data: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, DatasetDirectory):
            raise OptionError(
                "mm.Model: expected a Merlin loader, as mm.Loader(ms.Dataset(files, "
                f"schema=dataset.schema), batch_size=...). Found: {data.path}, an opened dataset "
                "directory, which the models of this package take, such as SIMModel."
            )
        return merlins(data, *args, **kwargs)

    return converted


def _weighed(model: Any, outputs: Any, step: ComposedStep) -> Any:
    """Give the loss of each output that a block's losses stand beside its share."""
    weights = outputs.sample_weight
    if not isinstance(weights, dict) or not model.model_outputs:
        raise OptionError(
            "A block with losses of its own should stand before outputs such as mm.BinaryOutput. "
            "Received: a prediction task of Merlin's older kind."
        )
    known = {output.full_name: output.target for output in model.model_outputs}
    weighed = dict(weights)
    for label, share in step.shares.items():
        # An output without a name of its target is the only one, of the only label.
        names = [name for name, target in known.items() if target in (label, None)]
        for name in names:
            if weights[name] is not step.sample_weight:
                raise OptionError(
                    f"The output of {label!r} should leave sample weights as they are: the block's "
                    "own losses would lack the ones that it makes. Give them with the batches, as "
                    "(columns, labels, sample weights)."
                )
            if share != 1.0 and model.compiled_loss._user_loss_weights is None:
                labels = outputs.targets[name]
                whole = tf.ones_like(labels, tf.float32)
                weight = whole if weights[name] is None else tf.cast(weights[name], tf.float32)
                weighed[name] = share * weight
    return outputs.copy_with_updates(sample_weight=weighed)


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
