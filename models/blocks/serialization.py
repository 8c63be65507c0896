"""How blocks are known by name, and how they write their configuration down."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, TypeVar

import tensorflow as tf
from merlin.models.tf.core.base import Block
from merlin.models.utils.schema_utils import (
    schema_to_tensorflow_metadata_json,
    tensorflow_metadata_json_to_schema,
)
from merlin.schema import Schema

AnyBlock = TypeVar("AnyBlock", bound=type[Any])


def register_block(block: AnyBlock) -> AnyBlock:
    """Make a block known to Keras, which loads it, and to Merlin, which makes it by name.

    Merlin's name is the class's in snake case; where a block's options all have defaults, any
    place that takes a block takes that name instead.

    >>> from .attention import DINAttention
    >>> type(Block.parse("din_attention")) is DINAttention
    True
    """
    Block.registry.register()(block)
    registered: AnyBlock = tf.keras.utils.register_keras_serializable(package="merlin_sim")(block)
    return registered


class ConfiguredBlock(Block):
    """A block that keeps each argument of its ``__init__`` under its own name, as its config."""

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the block."""
        config: dict[str, Any] = super().get_config()
        config.pop("autocast", None)
        arguments = inspect.signature(type(self).__init__).parameters.values()
        names = [a.name for a in arguments if a.kind is a.POSITIONAL_OR_KEYWORD][1:]
        # A subclass with an argument of another name says that one itself.
        return {**config, **{n: _plain(getattr(self, n)) for n in names if hasattr(self, n)}}


def _plain(value: Any) -> Any:
    if isinstance(value, tf.keras.layers.Layer):
        return tf.keras.layers.serialize(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple | list) else value


def schema_json(schema: Schema) -> str:
    """Return the JSON that Merlin reads back, tags in order: the same for the same schema.

    Merlin keeps tags in sets, whose order changes from process to process and may change from one
    reading to the next.

    >>> from merlin.schema import ColumnSchema, Tags
    >>> column = ColumnSchema("item_id", tags=[Tags.ITEM, "b", "a", "c"])
    >>> json.loads(schema_json(Schema([column])))["feature"][0]["annotation"]["tag"]
    ['a', 'b', 'c', 'item']
    """
    document = json.loads(schema_to_tensorflow_metadata_json(schema))
    for feature in document["feature"]:
        feature.get("annotation", {}).get("tag", []).sort()
    return json.dumps(document, sort_keys=True)


def schema_from(schema: Schema | str) -> Schema:
    """Return a schema as it is, or from the JSON that :func:`schema_json` made of it."""
    return tensorflow_metadata_json_to_schema(schema) if isinstance(schema, str) else schema


def part_from(part: Any) -> Any:
    """Return a block as it is, or from its serialized configuration."""
    return tf.keras.layers.deserialize(part) if isinstance(part, dict) else part
