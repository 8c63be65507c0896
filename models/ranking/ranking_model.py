"""What makes the blocks Merlin models: their logit, their objective, their columns."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, TypeVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.schema import Schema

from ...schemas.dataset import DatasetDirectory
from ..blocks.embeddings.left_padding import LeftPadding
from ..blocks.heads.relu_layers import published_dense
from ..loss_means import LossMeans
from ..savable_model import SavableModel
from .options import RankingOptions
from .ranking_block import RankingBlock
from .ranking_channels import RankingChannels

AnyModel = TypeVar("AnyModel", bound="RankingModel")


class RankingOutputs(NamedTuple):
    """What a forward pass gives."""

    logits: tf.Tensor
    """The logit: [batch, 1], float32."""


class RankingLosses(NamedTuple):
    """The objective of one batch."""

    total_loss: tf.Tensor
    """Binary cross-entropy from the logits: a float32 scalar."""


class RankingModel(SavableModel):
    """A block of this package and the logit of its last hidden layer, as a Merlin model.

    It is ``mm.Model(block, mm.BinaryOutput(label))`` with the same weights. ``predict`` gives the
    click probability, [batch, 1], float32.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
        name: The model's name; None for one made of the class's.
        dtype: The precision policy; None for the global one.
    """

    body_type: ClassVar[type[RankingBlock[Any]]]

    def __init__(
        self,
        schema: Schema | str,
        options: RankingOptions | dict[str, Any],
        *,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        """Check the arguments and make block and output."""
        policy = dtype or tf.keras.mixed_precision.global_policy()
        body = self.body_type(schema, options, dtype=policy, name="body")
        # In mixed precision the logit stays in float32: losses come from float32 logits.
        logit = published_dense(1, None, dtype="float32", name="logit")
        probability = tf.keras.layers.Activation("sigmoid", dtype="float32", name="probability")
        label = body.channels.label
        output = mm.BinaryOutput(label, to_call=logit, post=probability, dtype="float32")
        super().__init__(body, output, schema=body.schema, dtype=policy, autocast=False, name=name)
        self.body = body
        self.output_block = output
        self._prepare_features = LeftPadding({}, name="as_it_is")
        self._loss_means = LossMeans(())
        self.build()

    @classmethod
    def from_schema(cls: type[AnyModel], schema: Schema, **options: Any) -> AnyModel:
        """Build the model for data of this schema.

        Args:
            schema: The Merlin schema of the dataset, label included.
            **options: Options of the model by name, as its options class lists them.
        """
        return cls(schema, cls.body_type.options_type.parse(options))

    @classmethod
    def from_dataset(cls: type[AnyModel], dataset: DatasetDirectory, **options: Any) -> AnyModel:
        """Build the model for an opened dataset directory."""
        return cls.from_schema(dataset.schema, **options)

    @property
    def channels(self) -> RankingChannels:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def label(self) -> str:
        """The label's column."""
        return self.channels.label

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included."""
        return (self.label, *self.served_columns)

    @property
    def served_columns(self) -> tuple[str, ...]:
        """What inference reads."""
        return self.channels.served

    @property
    def served_schema(self) -> Schema:
        """The schema of what inference reads."""
        return self.channels.inputs

    @property
    def options(self) -> RankingOptions:
        """The model's options."""
        options: RankingOptions = self.body.options
        return options

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
        self.body.build()
        self.output_block.build(tf.TensorShape([None, self.body.output_dim]))
        self.built = True

    def forward(self, columns: dict[str, Any], training: bool = False) -> RankingOutputs:
        """Return the logits of a batch of columns.

        Args:
            columns: One batch.
            training: Whether to prepare the tables for a gradient.
        """
        hidden = self.body.forward(self.body.features(columns), training=training)
        return RankingOutputs(self.output_block.to_call(hidden))

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[RankingLosses, tf.Tensor]:
        """Return the losses of a batch by name, and its logits, for a loop of one's own.

        Args:
            columns: One batch, as ``fit`` takes it.
            labels: [batch] or [batch, 1].
            sample_weight: [batch] or [batch, 1]; None counts every sample once.
            training: Whether to prepare the tables for a gradient.
        """
        logits = self.forward(columns, training=training).logits
        loss = self.evaluated_loss.cost(labels, logits, sample_weight)
        weight = self.evaluated_loss.weight
        return RankingLosses(loss if weight is None else weight * loss), logits

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, testing: bool | None = None
    ) -> tf.Tensor:
        """Return click probabilities.

        Args:
            inputs: One batch of columns.
            training: Whether to prepare the tables for a gradient.
            testing: Merlin's flag of an evaluation step.
        """
        return self.to_probabilities(self.forward(inputs, bool(training)).logits)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the model."""
        config = self.body.get_config()
        return {
            "name": self.name,
            "dtype": self.dtype_policy.name,
            "schema": config["schema"],
            "options": config["options"],
        }

    @classmethod
    def from_config(
        cls: type[AnyModel], config: dict[str, Any], custom_objects: Any = None
    ) -> AnyModel:
        """Rebuild the model from ``get_config``."""
        return cls(**config)
