"""What the model of every family shares: a block, the logit over it, and the columns it reads."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.schema import Schema

from ...schemas.dataset import DatasetDirectory
from ..blocks.checks import OptionError
from ..checked_options import CheckedOptions
from ..loss_means import LossMeans
from ..savable_model import SavableModel
from .columns_block import ColumnsBlock

AnyModel = TypeVar("AnyModel", bound="BlockModel")
AnyLosses = TypeVar("AnyLosses", bound=Any)


class BlockModel(SavableModel):
    """A block of this package and the logit of its last hidden layer, as a Merlin model.

    It is ``mm.Model(block, mm.BinaryOutput(label))`` with the same weights. ``predict`` gives the
    click probability, [batch, 1], float32.

    A subclass has ``forward`` and ``compute_step`` beside the names below.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
        name: The model's name; None for one made of the class's.
        dtype: The precision policy; None for the global one.
        **parts: Parts of the block that are passed in, as its ``part_names`` lists them.
    """

    body_type: ClassVar[type[ColumnsBlock[Any]]]
    body: Any

    def __init__(
        self,
        schema: Schema | str,
        options: CheckedOptions | dict[str, Any],
        *,
        name: str | None = None,
        dtype: Any = None,
        **parts: Any,
    ) -> None:
        """Check the arguments and make block and output."""
        self._refuse_others(parts)
        policy = dtype or tf.keras.mixed_precision.global_policy()
        body = self.body_type(schema, options, dtype=policy, name="body", **parts)
        # In mixed precision the logit stays in float32: losses come from float32 logits.
        probability = tf.keras.layers.Activation("sigmoid", dtype="float32", name="probability")
        label = body.channels.label
        logit = self.make_logit()
        output = mm.BinaryOutput(label, to_call=logit, post=probability, dtype="float32")
        super().__init__(body, output, schema=body.schema, dtype=policy, autocast=False, name=name)
        self.body = body
        self.output_block = output
        self._prepare_features = self.prepared_by(body)
        self._loss_means = LossMeans(self.inner_losses_of(body))
        self.build()

    @staticmethod
    def make_logit() -> tf.keras.layers.Layer:
        """Make the layer of the logit, float32."""
        return tf.keras.layers.Dense(1, dtype="float32", name="logit")

    @staticmethod
    def prepared_by(body: Any) -> tf.keras.layers.Layer:
        """Return what brings a batch of ``fit`` into the form that the block takes."""
        raise NotImplementedError

    @staticmethod
    def inner_losses_of(body: Any) -> tuple[str, ...]:
        """Return the names of the losses beside that of the logit."""
        return ()

    @classmethod
    def from_schema(cls: type[AnyModel], schema: Schema, **options: Any) -> AnyModel:
        """Build the model for data of this schema.

        Args:
            schema: The Merlin schema of the dataset, label included.
            **options: Options of the model by name, as its options class lists them, and the
                parts in the block's ``part_names``.
        """
        parts_of_block = cls.body_type.part_names
        parts = {name: options.pop(name) for name in parts_of_block if name in options}
        return cls(schema, cls.body_type.options_type.parse(options), **parts)

    @classmethod
    def from_dataset(cls: type[AnyModel], dataset: DatasetDirectory, **options: Any) -> AnyModel:
        """Build the model for an opened dataset directory."""
        return cls.from_schema(dataset.schema, **options)

    @classmethod
    def _refuse_others(cls, parts: dict[str, Any]) -> None:
        others = sorted(set(parts) - set(cls.body_type.part_names))
        if others:
            raise OptionError(
                f"{cls.__name__} does not take {', '.join(f'`{name}`' for name in others)}. "
                f"Merlin's Model does: mm.Model({cls.body_type.__name__}.from_schema(schema), "
                "mm.BinaryOutput(label), ...)."
            )

    @property
    def label(self) -> str:
        """The label's column."""
        return str(self.body.channels.label)

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included."""
        return (self.label, *self.served_columns)

    @property
    def served_columns(self) -> tuple[str, ...]:
        """What inference reads."""
        served: tuple[str, ...] = self.body.channels.served
        return served

    @property
    def served_schema(self) -> Schema:
        """The schema of what inference reads."""
        return self.body.channels.schema.select_by_name(list(self.served_columns))

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
        self.body.build()
        self.output_block.build(tf.TensorShape([None, self.body.output_dim]))
        self.built = True

    def forward(self, columns: dict[str, Any], training: bool = False) -> Any:
        """Return a batch's outputs, ``logits`` among them."""
        raise NotImplementedError

    def regularized(self, losses: AnyLosses) -> AnyLosses:
        """Add what tables are regularised by, after a forward pass, to what is minimised."""
        added = self.body.regularization()
        if not added:
            return losses
        whole: AnyLosses = losses._replace(total_loss=tf.add_n([losses[0], *added]))
        return whole

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, testing: bool | None = None
    ) -> tf.Tensor:
        """Return click probabilities.

        Args:
            inputs: One batch of columns.
            training: Whether dropout applies, and tables are prepared for a gradient.
            testing: Merlin's flag of an evaluation step.
        """
        return self.to_probabilities(self.forward(inputs, bool(training)).logits)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the model."""
        config = self.body.get_config()
        names = ["schema", "options", *self.body_type.part_names]
        return {
            "name": self.name,
            "dtype": self.dtype_policy.name,
            **{name: config[name] for name in names},
        }

    @classmethod
    def from_config(
        cls: type[AnyModel], config: dict[str, Any], custom_objects: Any = None
    ) -> AnyModel:
        """Rebuild the model from ``get_config``."""
        return cls(**config)
