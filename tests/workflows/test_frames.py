from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from merlin_sim.workflows import frames as backend


@pytest.mark.parametrize("largest", [5, 2**40])
def test_rows_are_ordered_by_several_columns_however_large(largest):
    rng = np.random.default_rng(0)
    keys = [rng.integers(0, 3, 200), rng.integers(0, largest, 200), rng.integers(0, largest, 200)]
    assert (backend.join_keys(keys) is None) == (largest > 5)
    expected = sorted(range(200), key=lambda row: [key[row] for key in keys])
    assert backend.order_of_rows(keys).tolist() == expected


def test_ranks_are_those_of_the_bytes():
    keys = ["b", "B", "é", "a", "z", "b", "ab"]
    ordered = sorted(set(keys))
    assert backend.ordered_codes(pa.array(keys)).tolist() == [ordered.index(key) for key in keys]


def test_a_column_of_lists_is_printed_and_goes_through_arrow():
    column = backend.list_column(np.array([1, 2, 3]), np.array([0, 2, 2, 3]), pd.DataFrame())
    frame = pd.DataFrame({"ids": column})
    assert "[1 2]" in frame.to_string()
    assert backend.frame_to_arrow(frame)["ids"].to_pylist() == [[1, 2], [], [3]]
    values, offsets = backend.lists_of_arrow(backend.arrow_of(frame.iloc[1:]["ids"]))
    assert (values.tolist(), offsets.tolist()) == ([3], [0, 0, 1])
