"""What DLRM and DCNv2 read from a Merlin schema: the columns of each channel, as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from merlin.schema import Schema

from ...schemas.channels import CATEGORICAL, LABEL, NUMERICAL
from ...schemas.contracts.plain_rows import PLAIN_ROWS
from ..frame.targets import with_one_target


class RankingFeatures(NamedTuple):
    """One batch, by channel."""

    numerical: tf.Tensor | None
    """The numbers, [batch, features], float32; None where there are none."""

    categorical: dict[str, tf.Tensor]
    """Ids by column, each [batch], int32."""


@dataclass(frozen=True)
class RankingChannels:
    """The columns of a dataset of plain rows."""

    label: str
    """Column of the label."""

    numerical: tuple[str, ...]
    """Columns of numbers; may be none."""

    categorical: tuple[str, ...]
    """Columns of ids, each with a table of its own."""

    schema: Schema
    """The schema of all columns."""

    @classmethod
    def read(cls, schema: Schema, label: str | None = None) -> RankingChannels:
        """Read the channels from the tags of a Merlin schema.

        Args:
            schema: The schema.
            label: The label's column, where there are several targets.

        Raises:
            MerlinSimError: Naming the channels that no column is of.
        """
        schema = with_one_target(schema, label)
        found = PLAIN_ROWS.require(schema, "The dataset")
        numerical, categorical = found.get(NUMERICAL, ()), found[CATEGORICAL]
        return cls(found[LABEL][0], tuple(numerical), tuple(categorical), schema)

    @property
    def served(self) -> tuple[str, ...]:
        """The columns that inference reads."""
        return (*self.categorical, *self.numerical)

    @property
    def inputs(self) -> Schema:
        """The schema of what inference reads."""
        return self.schema.select_by_name(list(self.served))

    def gather(self, columns: Mapping[str, Any]) -> RankingFeatures:
        """Sort a batch's columns, [batch] or [batch, 1], into channels."""
        numbers = [tf.reshape(tf.cast(columns[name], tf.float32), [-1]) for name in self.numerical]
        # int32 is half the memory of int64; FeatureEmbedding refuses a table with 2^31 rows.
        ids = {
            name: tf.reshape(tf.cast(columns[name], tf.int32), [-1]) for name in self.categorical
        }
        return RankingFeatures(tf.stack(numbers, axis=1) if numbers else None, ids)
