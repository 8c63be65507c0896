"""What makes the three bodies Merlin models: fit, evaluate, predict, save and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.io import save_merlin_metadata
from merlin.models.tf.core.prediction import Prediction
from merlin.models.tf.distributed.backend import hvd, hvd_installed
from merlin.models.utils.schema_utils import tensorflow_metadata_json_to_schema
from merlin.schema import Schema

from ..schemas.dataset import Dataset
from .blocks.checks import OptionError
from .blocks.left_padding import LeftPadding
from .body import Body
from .channels import Channels, Features
from .merlin_input import to_batches
from .objective import EVALUATED_SHARE, LossMeans, Outputs, StepLosses, inner_losses, step_losses
from .options import ModelOptions
from .schema_json import schema_json
from .serving_signature import output_schema, serving_function, serving_signature

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
        """Check the options and make the layers."""
        policy = kwargs.pop("dtype", None) or tf.keras.mixed_precision.global_policy()
        body = self.body_type(schema, options, dtype=policy, name="body")
        channels = body.channels
        probability = tf.keras.layers.Activation("sigmoid", dtype="float32", name="probability")
        output = mm.BinaryOutput(channels.label, to_call=probability, dtype="float32")
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
        self._loss_means = LossMeans() if self.body_type.has_auxiliary_loss else None
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
    def metrics(self) -> list[tf.keras.metrics.Metric]:
        """The compiled metrics, and the mean of each part of the objective."""
        means = self._loss_means.means if self._loss_means is not None else []
        return [*super().metrics, *means]

    @property
    def options(self) -> ModelOptions:
        """The model's options."""
        options: ModelOptions = self.body.options
        return options

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
        outputs: Outputs = self.body(features, training=training, with_objective=with_objective)
        return outputs

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

    def call(
        self,
        inputs: dict[str, Any],
        targets: Any = None,
        training: bool | None = None,
        testing: bool | None = None,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return click probabilities; with targets, add the inner losses.

        Args:
            inputs: One batch of columns.
            targets: Labels, or a dictionary with the label column; None at inference.
            training: Whether dropout applies.
            testing: Merlin's flag of an evaluation step.
            sample_weight: [batch] or [batch, 1]; weighs the inner losses.
        """
        outputs = self.forward(inputs, bool(training), with_objective=targets is not None)
        if targets is not None:
            labels = targets[self.channels.label] if isinstance(targets, dict) else targets
            losses = step_losses(outputs, labels, sample_weight)
            if self._loss_means is not None:
                self._loss_means.update(losses, tf.shape(outputs.logits)[0])
            for loss in inner_losses(outputs, labels, sample_weight):
                self.add_loss(loss)
        return self.output_block(outputs.logits, training=bool(training), testing=bool(testing))

    def call_train_test(
        self,
        x: dict[str, Any],
        y: Any = None,
        sample_weight: Any = None,
        training: bool = False,
        testing: bool = False,
    ) -> Prediction:
        """Run a training or evaluation step's forward pass, as Merlin's steps ask for it."""
        probabilities = self(
            x, targets=y, training=training, testing=testing, sample_weight=sample_weight
        )
        name, label = self.output_block.full_name, self.channels.label
        labels = y[label] if isinstance(y, dict) else y
        labels = tf.reshape(tf.cast(labels, probabilities.dtype), tf.shape(probabilities))
        return Prediction({name: probabilities}, {name: labels}, {name: sample_weight})

    def train_step(self, data: Any) -> dict[str, Any]:
        """Train on one batch; histories may be ragged tensors too."""
        logs: dict[str, Any] = super().train_step(self._padded(data))
        return logs

    def test_step(self, data: Any) -> dict[str, Any]:
        """Evaluate one batch; histories may be ragged tensors too."""
        logs: dict[str, Any] = super().test_step(self._padded(data))
        return logs

    def _padded(self, data: Any) -> Any:
        columns, *rest = tf.keras.utils.unpack_x_y_sample_weight(data)
        return (self._prepare_features(columns), *rest)

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        loss_weights: Any = None,
        **kwargs: Any,
    ) -> None:
        """Do as Merlin's ``compile`` does; beside a first stage the loss given counts half.

        Args:
            optimizer: As in Merlin.
            loss: Loss of the evaluated output; None for binary cross-entropy, as published.
            metrics: Metrics of the evaluated output; None for Merlin's for binary outputs.
            loss_weights: Weight of ``loss``; None for the published one.
            **kwargs: What else Merlin's ``compile`` takes.
        """
        if loss_weights is None and self.body_type.has_stage_one:
            loss_weights = {self.output_block.full_name: EVALUATED_SHARE}
        super().compile(optimizer, loss, metrics, loss_weights, **kwargs)

    def fit(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Do as Merlin's ``fit`` does; ``x`` may be an opened dataset directory too."""
        shuffle = kwargs.get("shuffle", True)
        x = self._batches(x, "train", batch_size, shuffle)
        kwargs["validation_data"] = self._batches(kwargs.get("validation_data"), "test", batch_size)
        return super().fit(x, y, batch_size, **kwargs)

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Do as Merlin's ``evaluate`` does; ``x`` may be an opened dataset directory too."""
        return super().evaluate(self._batches(x, "test", batch_size), y, batch_size, **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """Do as Merlin's ``predict`` does; ``x`` may be an opened dataset directory too."""
        return super().predict(self._batches(x, "test", batch_size), batch_size, **kwargs)

    def _batches(
        self, data: Any, mapping: str, batch_size: int | None, shuffle: bool = False
    ) -> Any:
        schema, padding = self.body.schema, self._prepare_features
        return to_batches(data, mapping, schema, padding, batch_size, shuffle)

    def _maybe_build(self, inputs: Any) -> None:
        # Merlin's would prepare the features of each batch a second time, to learn their shapes.
        tf.keras.Model._maybe_build(self, inputs)

    def save(
        self, export_path: str | Path, include_optimizer: bool = True, save_traces: bool = False
    ) -> None:
        """Save as a SavedModel whose signature is the schema: one input for each column.

        A ragged history is two inputs, ``name__values`` and ``name__offsets``, as Merlin's loader
        gives it. Label and negative histories are no inputs. The schema of inputs and outputs is
        saved beside, as by Merlin.

        Args:
            export_path: Directory to write.
            include_optimizer: Whether to save the optimizer's state.
            save_traces: Whether to save each layer's traced functions too. ``load`` rebuilds the
                model from its configuration and does not need them, nor does serving; with them
                saving and loading take about ten times as long.
        """
        if hvd_installed and hvd.rank() != 0:
            return
        signature = serving_signature(self.channels)
        if self._saved_model_inputs_spec is None:
            self._set_save_spec(signature)
        tf.keras.Model.save(
            self,
            str(export_path),
            include_optimizer=include_optimizer,
            save_format="tf",
            save_traces=save_traces,
            signatures=serving_function(self, signature),
        )
        inputs = self.schema.select_by_name(list(self.channels.served))
        save_merlin_metadata(export_path, inputs, output_schema(self.output_block.full_name))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the model."""
        return {
            "name": self.name,
            "schema": schema_json(self.body.schema),
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
