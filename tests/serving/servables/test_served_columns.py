"""The columns of a schema, as a servable takes them."""

from __future__ import annotations

import numpy as np
from merlin.schema import ColumnSchema, Schema, Tags
from ranking_rows import ranking_schema

from merlin_sim.serving.servables.served_columns import ServedColumns


def test_a_table_of_one_row_is_one_of_keys():
    """A column whose every key is rare still takes keys, and no numbers."""
    schema = ranking_schema((5, 1), numbers=1)
    names = ["category_0", "category_1", "number_0"]
    columns = ServedColumns.of_rows(Schema([schema[name] for name in names]), names)
    assert [column.largest_id for column in columns.targets] == [4, 0, None]
    assert columns.inputs["category_1"] == (np.int64, (-1,))


def test_histories_stand_in_the_order_of_the_targets_of_their_domains():
    """An event's items are looked up target by target, and written to the histories in order."""

    def ids(name, domain, tags, **kwargs):
        properties = {"domain": {"min": 0, "max": 9, "name": domain}}
        return ColumnSchema(name, dtype="int64", tags=tags, properties=properties, **kwargs)

    lists = {"dims": (None, (0, 5))}
    columns = ServedColumns.read(
        Schema(
            [
                ids("item", "item", [Tags.ITEM]),
                ids("shop", "shop", [Tags.ITEM]),
                ids("shop_hist", "shop", [Tags.SEQUENCE], **lists),
                ids("item_hist", "item", [Tags.SEQUENCE], **lists),
            ]
        )
    )
    assert [column.name for column in columns.targets] == ["item", "shop"]
    assert [column.name for column in columns.histories] == ["item_hist", "shop_hist"]
