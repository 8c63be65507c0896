"""What every model of this package does to be kept: saved as a SavedModel, and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf
from merlin.models.io import save_merlin_metadata
from merlin.schema import Schema

from ..foundation.process_wide import quiet_save
from ..parallel.ranks.collectives import joined
from .blocks.checks import OptionError
from .blocks.embeddings.spread_tables import check_whole
from .saving import (
    check_saved_model,
    check_weights_path,
    columns_signature,
    is_checkpoint,
    model_from_checkpoint,
    output_schema,
    serving_function,
)
from .trainable_model import TrainableModel

AnyModel = TypeVar("AnyModel", bound="SavableModel")


class SavableModel(TrainableModel):
    """A model whose schema is the signature of what is saved.

    A subclass has ``served_schema`` beside what :class:`~.trainable_model.TrainableModel` asks for.
    """

    @property
    def served_schema(self) -> Schema:
        """The schema of what inference reads."""
        raise NotImplementedError

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
        outputs = output_schema(self.output_block.full_name)
        save_merlin_metadata(export_path, self.served_schema, outputs)

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

        Raises:
            OptionError: Where a model of another class was saved there.
            CheckpointError: Where the checkpoint is damaged, or of another class.
        """
        if is_checkpoint(export_path):
            model = model_from_checkpoint(export_path, cls)
        else:
            model = super().load(str(export_path))
        if not isinstance(model, cls):
            raise OptionError(
                f"{export_path} should be of a {cls.__name__}. Received: {type(model).__name__}"
            )
        return model
