"""What makes the three bodies Merlin models: fit, evaluate, predict, save and load."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.utils.schema_utils import (
    schema_to_tensorflow_metadata_json,
    tensorflow_metadata_json_to_schema,
)
from merlin.schema import Schema

from ..schemas.dataset import Dataset
from .blocks.checks import OptionError
from .blocks.left_padding import LeftPadding
from .body import Body
from .channels import Channels, Features
from .objective import Outputs, StepLosses, inner_losses, step_losses
from .options import ModelOptions

AnyModel = TypeVar("AnyModel", bound="InterestModel")


class InterestModel(mm.Model):
    """A body of this package as a ``merlin.models.tf.Model``.

    ``predict`` gives the click probability, [batch, 1], float32. The losses beside that of the
    evaluated logit (the first stage's, the auxiliary network's) arise inside, so that ``compile``
    and ``fit`` as they are train the published objective; at inference nothing of it is computed,
    and the negative histories need not be there.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
    """

    body_type: ClassVar[type[Body[Any]]]

    def __init__(self, schema: Schema, options: ModelOptions, **kwargs: Any) -> None:
        policy = kwargs.pop("dtype", None) or tf.keras.mixed_precision.global_policy()
        body = self.body_type(schema, options, dtype=policy, name="body")
        channels = body.channels
        probability = tf.keras.layers.Activation("sigmoid", dtype="float32", name="probability")
        output = mm.BinaryOutput(channels.label, to_call=probability)
        names = [n for n in schema.column_names if n in {*channels.categorical, *channels.served}]
        super().__init__(
            body,
            output,
            schema=schema.select_by_name(names),
            dtype=policy,
            autocast=False,
            **kwargs,
        )
        self.body = body
        self.output_block = output
        self._prepare_features = LeftPadding(channels.histories, name="left_padding")
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
    def from_dataset(cls: type[AnyModel], dataset: Dataset, **options: Any) -> AnyModel:
        """Build the model for an opened dataset directory."""
        return cls.from_schema(dataset.schema, **options)

    @property
    def channels(self) -> Channels:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def options(self) -> ModelOptions:
        """The model's options."""
        return self.body.options

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
        self.body.build()
        self.output_block.build(tf.TensorShape([None, 1]))
        self.built = True

    def features(self, columns: dict[str, Any], with_negatives: bool = False) -> Features:
        """Sort a batch of columns, ragged or padded, into channels.

        Raises:
            OptionError: Naming the columns that are missing.
        """
        missing = self.channels.missing(columns, with_negatives)
        if missing:
            raise OptionError(
                f"{type(self).__name__} is missing columns: {', '.join(missing)}. "
                f"Received: {', '.join(sorted(columns))}."
            )
        return self.channels.gather(self._prepare_features(columns))

    def forward(
        self, columns: dict[str, Any], training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the logits of a batch, and what the objective needs if that is asked for."""
        needs_negatives = with_objective and self.body_type.has_auxiliary_loss
        features = self.features(columns, with_negatives=needs_negatives)
        return self.body(features, training=training, with_objective=with_objective)

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[StepLosses, tf.Tensor]:
        """Return the losses of a batch by name, and its evaluated logits, for a loop of one's own.

        Args:
            columns: One batch, as ``fit`` takes it.
            labels: [batch] or [batch, 1].
            sample_weight: [batch] or [batch, 1]; None counts every sample once.
            training: Whether dropout applies.
        """
        outputs = self.forward(columns, training=training, with_objective=True)
        return step_losses(outputs, labels, sample_weight), outputs.logits

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the model."""
        return {
            "name": self.name,
            "schema": schema_to_tensorflow_metadata_json(self.body.schema),
            "options": self.options.to_dict(),
            "dtype": self.dtype_policy.name,
        }

    @classmethod
    def from_config(
        cls: type[AnyModel], config: dict[str, Any], custom_objects: Any = None
    ) -> AnyModel:
        """Rebuild the model from ``get_config``."""
        schema = tensorflow_metadata_json_to_schema(config["schema"])
        options = cls.body_type.options_type.parse(config["options"])
        return cls(schema, options, name=config["name"], dtype=config["dtype"])
