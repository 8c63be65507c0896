"""A Merlin schema as text, the same for the same schema."""

from __future__ import annotations

import json

from merlin.models.utils.schema_utils import schema_to_tensorflow_metadata_json
from merlin.schema import Schema


def schema_json(schema: Schema) -> str:
    """Return the JSON that Merlin reads back, tags in order.

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
