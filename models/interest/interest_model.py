"""What makes the blocks Merlin models: their columns, their objective, save and load."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.schema import Schema

from ...foundation.batch_names import HISTORY_END
from ...schemas.dataset import DatasetDirectory
from ..blocks.checks import OptionError
from ..loss_means import LossMeans
from ..savable_model import SavableModel
from .interest_block import InterestBlock
from .interest_channels import Channels, Features
from .objective import Outputs, StepLosses, step_losses, weights_over_counted
from .options import ModelOptions

AnyModel = TypeVar("AnyModel", bound="InterestModel")


class InterestModel(SavableModel):
    """A block of this package and the logit of its last hidden layer, as a Merlin model.

    It is ``mm.Model(block, mm.BinaryOutput(label))`` with the same weights.

    ``predict`` gives the click probability, [batch, 1], float32. ``compile`` and ``fit`` as they
    are train the published objective, with the losses beside that of the evaluated logit (the
    first stage's, the auxiliary network's); at inference nothing of it is computed, and the
    negative histories need not be there.

    Args:
        schema: The Merlin schema of the dataset, label included.
        options: The model's options.
        name: The model's name; None for one made of the class's.
        dtype: The precision policy; None for the global one.
        **parts: Parts of the block that are passed in, as ``part_names`` lists them.
    """

    body_type: ClassVar[type[InterestBlock[Any]]]
    part_names: ClassVar[tuple[str, ...]] = ()
    takes_candidates: ClassVar[bool] = True

    def __init__(
        self,
        schema: Schema | str,
        options: ModelOptions | dict[str, Any],
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
        logit = tf.keras.layers.Dense(1, dtype="float32", name="logit")
        probability = tf.keras.layers.Activation("sigmoid", dtype="float32", name="probability")
        label = body.channels.label
        output = mm.BinaryOutput(label, to_call=logit, post=probability, dtype="float32")
        super().__init__(body, output, schema=body.schema, dtype=policy, autocast=False, name=name)
        self.body = body
        self.output_block = output
        self._prepare_features = body.padding
        losses = StepLosses._fields[1:] if self.body.has_auxiliary_loss else ()
        self._loss_means = LossMeans(losses)
        self.build()

    @classmethod
    def from_schema(cls: type[AnyModel], schema: Schema, **options: Any) -> AnyModel:
        """Build the model for data of this schema.

        Args:
            schema: The Merlin schema of the dataset, label included.
            **options: Options of the model by name, as its options class lists them, and the
                parts in ``part_names``.
        """
        parts = {name: options.pop(name) for name in cls.part_names if name in options}
        return cls(schema, cls.body_type.options_type.parse(options), **parts)

    @classmethod
    def _refuse_others(cls, parts: dict[str, Any]) -> None:
        others = sorted(set(parts) - set(cls.part_names))
        if others:
            raise OptionError(
                f"{cls.__name__} does not take {', '.join(f'`{name}`' for name in others)}. "
                f"Merlin's Model does: mm.Model({cls.body_type.__name__}.from_schema(schema), "
                "mm.BinaryOutput(label), ...)."
            )

    @classmethod
    def from_dataset(cls: type[AnyModel], dataset: DatasetDirectory, **options: Any) -> AnyModel:
        """Build the model for an opened dataset directory."""
        return cls.from_schema(dataset.schema, **options)

    @property
    def channels(self) -> Channels:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def label(self) -> str:
        """The label's column."""
        return self.channels.label

    @property
    def training_columns(self) -> tuple[str, ...]:
        """What training reads of each row, label included."""
        negative = self.channels.negative if self.body.has_auxiliary_loss else ()
        return (self.label, *self.served_columns, *negative)

    @property
    def served_columns(self) -> tuple[str, ...]:
        """What inference reads."""
        return self.channels.served

    @property
    def served_schema(self) -> Schema:
        """The schema of what inference reads."""
        return self.schema.select_by_name(list(self.channels.served))

    @property
    def options(self) -> ModelOptions:
        """The model's options."""
        options: ModelOptions = self.body.options
        return options

    def build(self, input_shape: Any = None) -> None:
        """Create all weights; schema and options tell every size."""
        self.body.build()
        self.output_block.build(tf.TensorShape([None, self.body.output_dim]))
        self.built = True

    def features(self, columns: dict[str, Any], with_negatives: bool = False) -> Features:
        """Sort a batch of columns, ragged or padded, into channels.

        Raises:
            OptionError: Naming the columns that are missing.
        """
        return self.body.features(columns, with_negatives)

    def logits(self, hidden: tf.Tensor) -> tf.Tensor:
        """Return the logits, [samples, 1], float32, of the block's last hidden layer."""
        return self.output_block.to_call(hidden)

    def forward(
        self, columns: dict[str, Any], training: bool = False, with_objective: bool = False
    ) -> Outputs:
        """Return the logits of a batch, and what the objective needs if that is asked for.

        A batch has one target item for each row, [rows], or candidates, [users, candidates]; the
        other columns have a row for each user. All of a user's candidates see the whole history,
        unless the column ``history_end``, [users, candidates], says where each has to stop: see
        :data:`~merlin_sim.foundation.batch_names.HISTORY_END`.
        """
        needs_negatives = with_objective and self.body.has_auxiliary_loss
        features = self.features(columns, with_negatives=needs_negatives)
        outputs = self.body.forward(features, training=training, with_objective=with_objective)
        logits = self.logits(outputs.hidden)
        return Outputs(logits, outputs.stage_one_logits, outputs.auxiliary)

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
            labels: One for each sample: [users, candidates], [rows] or [rows, 1].
            sample_weight: Of the same shape; None counts every sample once. In a batch with
                ``history_end`` samples of weight 0 are fillers: means are over the others.
            training: Whether dropout applies.
        """
        if HISTORY_END in columns:
            sample_weight = weights_over_counted(sample_weight)
        outputs = self.forward(columns, training=training, with_objective=True)
        losses = step_losses(outputs, labels, sample_weight, self.evaluated_loss)
        return losses, outputs.logits

    def call(
        self, inputs: dict[str, Any], training: bool | None = None, testing: bool | None = None
    ) -> tf.Tensor:
        """Return click probabilities.

        Args:
            inputs: One batch of columns.
            training: Whether dropout applies.
            testing: Merlin's flag of an evaluation step.
        """
        return self.to_probabilities(self.forward(inputs, bool(training)).logits)

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the model."""
        config = self.body.get_config()
        names = ["schema", "options", *self.part_names]
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
