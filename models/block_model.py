"""Parts that all families share: a block that reads columns, the logit over it, a model of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import merlin.models.tf as mm
import numpy as np
import tensorflow as tf
from merlin.models.io import save_merlin_metadata
from merlin.models.tf.core.base import Block
from merlin.models.tf.inputs.embedding import EmbeddingTable
from merlin.schema import ColumnSchema, Schema, Tags

from ..foundation.process_wide import quiet_save
from ..parallel.checkpoints.checkpoint_store import choose_checkpoint
from ..parallel.ranks.collectives import joined
from ..schemas.channels import domain_of
from ..schemas.dataset import DatasetDirectory
from .blocks.checks import OptionError, check_choice
from .blocks.embeddings.feature_embedding import FeatureEmbedding, given_tables, tables_config
from .blocks.embeddings.left_padding import LeftPadding
from .blocks.embeddings.sharded_tables import check_whole
from .blocks.serialization import schema_from, schema_json
from .losses import LossMeans
from .options import CheckedOptions
from .saving import (
    check_saved_model,
    check_weights_path,
    columns_signature,
    is_checkpoint,
    restored_model,
    serving_function,
)
from .trainable_model import TrainableModel


def with_one_target(schema: Schema, label: str | None = None) -> Schema:
    """Leave out the other targets of a schema, which are for other outputs.

    >>> from merlin.schema import ColumnSchema
    >>> bought = ColumnSchema("bought", tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION])
    >>> rating = ColumnSchema("rating", tags=[Tags.TARGET, Tags.REGRESSION])
    >>> with_one_target(Schema([rating, bought])).column_names
    ['bought']
    """
    targets = schema.select_by_tag(Tags.TARGET)
    binary = targets.select_by_tag([Tags.BINARY_CLASSIFICATION, Tags.BINARY])
    if label is not None:
        check_choice("label", label, targets.column_names)
    chosen = label or next(iter([*binary.column_names, *targets.column_names]), None)
    return schema.excluding_by_name([name for name in targets.column_names if name != chosen])


AnyBlock = TypeVar("AnyBlock", bound="ColumnsBlock[Any]")
AnyOptions = TypeVar("AnyOptions", bound=CheckedOptions)


class ColumnsBlock(Block, Generic[AnyOptions]):
    """From a batch of columns to the last hidden layer, as any Merlin model chains it.

    Columns are chosen from the schema by their tags.

    Args:
        schema: The Merlin schema of the dataset, label included, or the JSON that ``get_config``
            made of it.
        options: The model's options, or the dictionary that ``get_config`` made of them.
        tables: Tables to take, by name of domain or of column, or a Merlin block that has them
            (``mm.InputBlockV2``, ``mm.Embeddings``); those that are not given are made. Two blocks
            that are given the same table share it.
        label: The column of the label, where the schema has several targets; None for the only
            one, or the first that is binary.
    """

    part_names: ClassVar[tuple[str, ...]] = ("tables", "label")
    """What is passed in besides schema and options."""
    options_type: ClassVar[type[Any]]
    is_input: ClassVar[bool] = True  # Merlin's mark of a block that takes columns
    channels: Any
    padding: LeftPadding
    built: bool

    def __init__(
        self,
        schema: Schema | str,
        options: AnyOptions | dict[str, Any],
        tables: Any = None,
        label: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Check options and columns; a subclass makes its layers after that."""
        super().__init__(autocast=False, **kwargs)
        parsed = self.options_type.parse(options) if isinstance(options, dict) else options
        self.options: AnyOptions = parsed
        self.label = label
        self.channels = self.read_channels(with_one_target(schema_from(schema), label))
        looked_up = self.channels.schema.select_by_name(list(self.channels.categorical))
        # Not for Keras to track: the embedding holds all tables, given ones too.
        self._given = _Untracked(given_tables(tables, looked_up))
        self.set_schema(self.channels.inputs)

    @classmethod
    def from_schema(cls: type[AnyBlock], schema: Schema, **options: Any) -> AnyBlock:
        """Make the block for data of this schema."""
        parts = {name: options.pop(name) for name in cls.part_names if name in options}
        return cls(schema, cls.options_type.parse(options), **parts)

    def make_embedding(self, names: Sequence[str], dim: int, name: str) -> FeatureEmbedding:
        """Make the embedding of some columns, with the tables that were given."""
        schema = self.channels.schema.select_by_name(list(names))
        domains = {domain_of(column) for column in schema}
        given = {d: table for d, table in self._given.tables.items() if d in domains}
        return FeatureEmbedding(schema, dim, given, dtype=self._dtype_policy, name=name)

    def regularization(self) -> list[tf.Tensor]:
        """Return the losses of the tables that are regularised, after a forward pass."""
        embeddings = [layer for layer in self.submodules if isinstance(layer, FeatureEmbedding)]
        return [loss for embedding in embeddings for loss in embedding.losses]

    def read_channels(self, schema: Schema) -> Any:
        """Find the columns of each channel, of a schema with one target.

        Returns:
            What has ``label``, ``served``, ``inputs`` and ``schema`` besides the family's own.
        """
        raise NotImplementedError

    @property
    def output_dim(self) -> int:
        """Length of the last hidden layer."""
        raise NotImplementedError

    def features(self, columns: Mapping[str, Any], with_negatives: bool = False) -> Any:
        """Sort a batch of columns, ragged or padded, into channels."""
        missing = self.channels.missing(columns, with_negatives)
        if missing:
            raise OptionError(
                f"{type(self).__name__} is missing columns: {', '.join(missing)}. "
                f"Received: {', '.join(sorted(columns))}."
            )
        return self.gather(self.padding(columns))

    def gather(self, columns: Mapping[str, Any]) -> Any:
        """Sort padded columns into channels."""
        return self.channels.gather(columns)

    def compute_output_shape(self, input_shape: Any) -> tf.TensorShape:
        """Columns -> [samples, output_dim]."""
        return tf.TensorShape([None, self.output_dim])

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config = super().get_config()
        config.pop("autocast", None)
        return {
            **config,
            "schema": schema_json(self.channels.schema),
            "options": self.options.to_dict(),
            "tables": tables_config(self._given.tables),
            "label": self.label,
        }


@dataclass(frozen=True)
class _Untracked:
    """Tables by domain, hidden from Keras, which names a variable by the shortest way to it."""

    tables: dict[str, EmbeddingTable]


AnyModel = TypeVar("AnyModel", bound="BlockModel")
AnyLosses = TypeVar("AnyLosses", bound=Any)


class BlockModel(TrainableModel):
    """A block of this package and the logit of its last hidden layer, as a Merlin model.

    It is ``mm.Model(block, mm.BinaryOutput(label))`` with the same weights. ``predict`` gives the
    click probability, [batch, 1], float32.

    A subclass has ``forward`` and ``compute_step`` besides the names below.

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
        others = sorted(set(parts) - set(self.body_type.part_names))
        if others:
            raise OptionError(
                f"{type(self).__name__} does not take {', '.join(f'`{name}`' for name in others)}. "
                f"Merlin's Model does: mm.Model({self.body_type.__name__}.from_schema(schema), "
                "mm.BinaryOutput(label), ...)."
            )
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
        self._prepare_features = body.padding
        self._loss_means = LossMeans(self.inner_losses_of(body))
        self.build()

    @staticmethod
    def make_logit() -> tf.keras.layers.Layer:
        """Make the layer of the logit, float32."""
        return tf.keras.layers.Dense(1, dtype="float32", name="logit")

    @staticmethod
    def inner_losses_of(body: Any) -> tuple[str, ...]:
        """Return the names of the losses besides that of the logit."""
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

    @property
    def channels(self) -> Any:
        """The columns that the model reads, by channel."""
        return self.body.channels

    @property
    def options(self) -> Any:
        """The model's options."""
        return self.body.options

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
        """Create all weights; schema and options give every size."""
        self.body.build()
        self.output_block.build(tf.TensorShape([None, self.body.output_dim]))
        self.built = True

    def forward(self, columns: dict[str, Any], training: bool = False) -> Any:
        """Return a batch's outputs, ``logits`` among them."""
        raise NotImplementedError

    def compute_step(
        self,
        columns: dict[str, Any],
        labels: tf.Tensor,
        sample_weight: tf.Tensor | None = None,
        training: bool = True,
    ) -> tuple[Any, tf.Tensor]:
        """Return the losses of a batch by name, and its evaluated logits, for a loop of one's own.

        Args:
            columns: One batch, as ``fit`` takes it.
            labels: One for each sample: [users, candidates], [rows] or [rows, 1].
            sample_weight: Of the same shape; None counts every sample once. In a batch with
                ``history_end`` samples of weight 0 are fillers: means are over the others.
            training: Whether dropout applies, and tables are prepared for a gradient.
        """
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
        """Return click probabilities."""
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

    def save(
        self,
        export_path: str | Path,
        include_optimizer: bool = True,
        save_traces: bool = False,
        *,
        overwrite: bool = True,
        save_format: str | None = None,
        options: tf.saved_model.SaveOptions | None = None,
    ) -> None:
        """Save as a SavedModel whose signature is the schema: one input for each column.

        A ragged history is two inputs, ``name__values`` and ``name__offsets``, as Merlin's loader
        gives it. The label is no input, nor is what only training reads. The schema of inputs and
        outputs is saved beside, as by Merlin.

        Args:
            export_path: Directory to write.
            include_optimizer: Whether to save the optimizer's state.
            save_traces: Whether to save each layer's traced functions too. ``load`` rebuilds the
                model from its configuration and does not need them, nor does serving; with them
                saving and loading take about ten times as long.
            overwrite: Whether to replace what is there, or, as Keras does, to ask.
            save_format: None or ``"tf"``; there is no other.
            options: TensorFlow's options of a SavedModel.
        """
        check_saved_model(export_path, save_format)
        check_whole(self, "save")
        if not joined().is_first:
            return
        signature = columns_signature(self.served_schema)
        if self._saved_model_inputs_spec is None:
            self._set_save_spec(signature)
        with quiet_save():
            tf.keras.Model.save(
                self,
                str(export_path),
                overwrite=overwrite,
                options=options,
                include_optimizer=include_optimizer,
                save_format="tf",
                save_traces=save_traces,
                signatures=serving_function(self, signature, self.output_block.full_name),
            )
        output = ColumnSchema(
            self.output_block.full_name, dtype=np.float32, tags=[Tags.BINARY_CLASSIFICATION]
        )
        save_merlin_metadata(export_path, self.served_schema, Schema([output]))

    def save_weights(self, filepath: str | Path, *args: Any, **kwargs: Any) -> Any:
        """Do as Keras does: to a TensorFlow checkpoint, or a file that ends in .weights.h5."""
        check_weights_path(filepath)
        check_whole(self, "save_weights")
        return super().save_weights(str(filepath), *args, **kwargs)

    @classmethod
    def load(cls: type[AnyModel], export_path: str | Path) -> AnyModel:
        """Load a model that ``save`` wrote, or one out of the checkpoints of ``merlin-sim train``.

        Args:
            export_path: A SavedModel, a run's directory of checkpoints (the best one is
                taken), or one ``step-...`` in it.
        """
        if is_checkpoint(export_path):
            model = restored_model(choose_checkpoint(Path(export_path)), cls)
        else:
            model = super().load(str(export_path))
        if not isinstance(model, cls):
            raise OptionError(
                f"{export_path} should be of a {cls.__name__}. Received: {type(model).__name__}"
            )
        return model
