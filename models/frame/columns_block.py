"""What the block of every family shares: its options, its columns, and how it is made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import tensorflow as tf
from merlin.models.tf.core.base import Block
from merlin.models.tf.inputs.embedding import EmbeddingTable
from merlin.schema import Schema

from ...schemas.channel_contract import domain_of
from ..blocks.checks import OptionError
from ..blocks.embeddings.feature_embedding import FeatureEmbedding, given_tables, tables_config
from ..blocks.serialization import schema_from, schema_json
from ..checked_options import CheckedOptions

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
    """What is passed in beside schema and options."""

    options_type: ClassVar[type[Any]]
    is_input: ClassVar[bool] = True  # Merlin's mark of a block that takes columns
    channels: Any
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
        self.channels = self.read_channels(schema_from(schema))
        looked_up = self.channels.schema.select_by_name(list(self.channels.categorical))
        # Not for Keras to track: tables stand in the embedding, whoever made them.
        self._given = _Untracked(given_tables(tables, looked_up))
        self.set_schema(self.channels.inputs)

    @classmethod
    def from_schema(cls: type[AnyBlock], schema: Schema, **options: Any) -> AnyBlock:
        """Make the block for data of this schema.

        Args:
            schema: The Merlin schema of the dataset, label included.
            **options: Options of the model by name, as its options class lists them, and the
                parts in ``part_names``.
        """
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
        """Find the columns of each channel.

        Returns:
            What has ``label``, ``served``, ``inputs`` and ``schema`` beside the family's own.
        """
        raise NotImplementedError

    @property
    def output_dim(self) -> int:
        """Length of the last hidden layer."""
        raise NotImplementedError

    def check_columns(self, missing: Sequence[str], received: Iterable[str]) -> None:
        """Refuse a batch that lacks columns.

        Raises:
            OptionError: Naming the columns that are missing.
        """
        if missing:
            raise OptionError(
                f"{type(self).__name__} is missing columns: {', '.join(missing)}. "
                f"Received: {', '.join(sorted(received))}."
            )

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
