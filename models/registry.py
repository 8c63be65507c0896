"""The models by name: how training and serving build one without knowing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.tf.core.base import NoOp
from merlin.schema import Schema

from ..foundation.exceptions import MerlinSimError
from ..parallel.checkpoints.checkpoint_store import choose_checkpoint
from .block_model import BlockModel
from .blocks.checks import check_choice
from .family import Family
from .known_families import families, find_family
from .losses import LossMeans
from .saving import is_checkpoint, restored_model
from .trainable_model import TrainableModel

MODELS: dict[str, type[Any]] = {name: f.model_class() for name, f in families().items()}
"""Model type -> class."""


def build_model(model_type: str, schema: Schema, **options: Any) -> Any:
    """Build a model for data of this schema.

    Args:
        model_type: ``"din"``, ``"dien"``, ``"sim"``, ``"eta"``, ``"sdim"``, ``"twin"``,
            ``"stca"``, ``"two_tower"``, ``"dlrm"``, ``"dcnv2"``, or ``"package.module:FAMILY"``.
        schema: The Merlin schema of the dataset, label included.
        **options: Options of the model by name; :func:`options_type` lists them.
    """
    return model_class(model_type).from_schema(schema, **options)


def model_class(model_type: str) -> Any:
    """Return a model's class by its type, as :func:`build_model` takes it."""
    if ":" not in model_type:
        check_choice("model_type", model_type, list(families()))
    return find_family(model_type).model_class()


def family_of(model: Any) -> Family:
    """Return the family that a model is of: a registered one, or the one that it names.

    A model of a family of one's own has the attribute ``family``.
    """
    for family in families().values():
        if type(model) is family.model_class():
            return family
    found = getattr(model, "family", None)
    if not isinstance(found, Family):
        raise MerlinSimError(
            f"{type(model).__name__} is of no family: expected a registered model, such as "
            "SIMModel, or one with the attribute `family`. A model composed of blocks, mm.Model("
            "block, outputs), is saved and loaded by Keras, and exported by `export_model`."
        )
    return found


def load_model(path: Path | str) -> Any:
    """Load a model of any class, as :meth:`~.block_model.BlockModel.load` does of one."""
    if not is_checkpoint(path):
        return BlockModel.load(path)
    checkpoint = choose_checkpoint(Path(path))
    model_type = checkpoint.metadata.get("model_type")
    return restored_model(checkpoint, model_class(str(model_type)))


def options_type(model_type: str) -> type[Any]:
    """Return the class of a model's options; its dataclass fields are the options.

    >>> "top_k" in options_type("sim").__dataclass_fields__
    True
    """
    check_choice("model_type", model_type, list(families()))
    return find_family(model_type).options


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
