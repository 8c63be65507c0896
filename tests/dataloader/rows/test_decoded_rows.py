from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from merlin_sim.dataloader.rows.decoded_rows import decode

LISTS = [[1, 2], None, [3, 4], [5, None]]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda of: pa.list_(of, 2)])
@pytest.mark.parametrize("start, missing", [(0, 1), (1, 0), (2, 1)])
def test_slices_of_lists_begin_at_zero_and_tell_what_is_missing(kind, start, missing):
    table = pa.table({"x": pa.array(LISTS, kind(pa.int64()))}).slice(start)
    column = decode(table, "", 0).columns["x"]
    assert column.missing == missing and column.values.dtype == np.int64
    assert column.offsets[0] == 0 and column.offsets[-1] == len(column.values)
    for row, values in enumerate(LISTS[start:]):
        if values is not None:
            found = column.values[column.offsets[row] : column.offsets[row + 1]]
            assert found.tolist() == [value or 0 for value in values]


@pytest.mark.parametrize("kind, shown", [(pa.int8(), 0), (pa.bool_(), 0), (pa.float32(), np.nan)])
def test_what_is_missing_keeps_its_type(kind, shown):
    column = decode(pa.table({"x": pa.array([1, None, None]).cast(kind)}), "", 0).columns["x"]
    assert column.missing == 1 and column.values.dtype == kind.to_pandas_dtype()
    np.testing.assert_array_equal(column.values, [1, shown, shown])
