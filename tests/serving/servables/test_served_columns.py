"""The columns of plain rows, as a servable takes them."""

from __future__ import annotations

import numpy as np
from merlin.schema import Schema
from ranking_rows import ranking_schema

from merlin_sim.serving.servables.served_columns import ServedColumns


def test_a_table_of_one_row_is_one_of_keys():
    """A column whose every key is rare still takes keys, and no numbers."""
    schema = ranking_schema((5, 1), numbers=1)
    names = ["category_0", "category_1", "number_0"]
    columns = ServedColumns.of_rows(Schema([schema[name] for name in names]), names)
    assert [column.largest_id for column in columns.targets] == [4, 0, None]
    assert columns.inputs["category_1"] == (np.int64, (-1,))
